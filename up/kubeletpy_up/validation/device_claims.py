"""Claims of devices, their templates, device classes and slices.

Source: validation of resource.k8s.io/v1 of an API server. CEL expressions are not compiled: nothing
here evaluates them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import amounts, metadata, persistent_volumes, scheduling

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

MAX_REQUESTS = MAX_CONSTRAINTS = MAX_CONFIGS = MAX_SELECTORS = MAX_RESULTS = 32
MAX_ALTERNATIVES, MAX_RESERVED, MAX_TOLERATIONS = 8, 256, 16
MAX_EXPRESSION, MAX_PARAMETERS = 10 * 1024, 10 * 1024
MAX_POOL_NAME, MAX_ID = 253, 32
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_MODES = ("All", "ExactCount")
_IMMUTABLE = "field is immutable"
_REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
_C_IDENTIFIER = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of "
    "alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for "
    "validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


def claim(report: Report, obj: JSON) -> None:
    """Check the spec of a ResourceClaim."""
    _devices(report, (obj.get("spec") or {}).get("devices") or {}, "spec.devices")


def claim_changed(report: Report, new: JSON, old: JSON, subresource: str) -> None:
    """The spec is immutable; in the status, an allocation is immutable."""
    if new.get("spec") != old.get("spec"):
        report.invalid("spec", None, _IMMUTABLE)
    if subresource == "status":
        _status(report, new, old)


def template(report: Report, obj: JSON) -> None:
    """Check the spec of a ResourceClaimTemplate."""
    spec = obj.get("spec") or {}
    supplied = spec.get("metadata") or {}
    metadata.labels(report, supplied.get("labels"), "spec.metadata.labels")
    metadata.annotation_map(report, supplied.get("annotations"), "spec.metadata.annotations")
    _devices(report, (spec.get("spec") or {}).get("devices") or {}, "spec.spec.devices")


def template_changed(report: Report, new: JSON, old: JSON) -> None:
    """A template is immutable."""
    if new.get("spec") != old.get("spec"):
        report.invalid("spec", new.get("spec"), _IMMUTABLE)


def device_class(report: Report, obj: JSON) -> None:
    """Check the spec of a DeviceClass."""
    spec = obj.get("spec") or {}
    _selectors(report, spec.get("selectors") or [], "spec.selectors")
    for index, config in enumerate(spec.get("config") or ()):
        _opaque(report, config, f"spec.config[{index}]")
    report.at_most("spec.config", spec.get("config"), MAX_CONFIGS)
    name = spec.get("extendedResourceName")
    if name is not None:
        for detail in amounts.not_extended(name):
            report.invalid("spec.extendedResourceName", name, detail)


def resource_slice(report: Report, obj: JSON) -> None:
    """Check driver, pool and node of a ResourceSlice, and the names of its devices."""
    spec = obj.get("spec") or {}
    _driver_name(report, spec.get("driver") or "", "spec.driver")
    pool = spec.get("pool") or {}
    _pool_name(report, pool.get("name") or "", "spec.pool.name")
    if (count := pool.get("resourceSliceCount") or 0) <= 0:
        report.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    _where(report, spec, "spec")
    devices = spec.get("devices")
    _unique(report, devices, lambda each: each.get("name"), "spec.devices")
    for index, device in enumerate(devices or ()):
        name = device.get("name") or ""
        report.all_invalid(f"spec.devices[{index}].name", name, formats.dns_label(name))


def slice_changed(report: Report, new: JSON, old: JSON) -> None:
    """The driver, the pool and the node are immutable."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    for path, found, known in (
        ("pool.name", after.get("pool", {}).get("name"), before.get("pool", {}).get("name")),
        ("driver", after.get("driver"), before.get("driver")),
        ("nodeName", after.get("nodeName"), before.get("nodeName")),
    ):
        if found != known:
            report.invalid(f"spec.{path}", found, _IMMUTABLE)


def _where(report: Report, spec: JSON, path: str) -> None:
    found = []
    if (name := spec.get("nodeName")) is not None:
        if name:
            found.append("`nodeName`")
            report.all_invalid(f"{path}.nodeName", name, formats.dns_subdomain(name))
        else:
            detail = "must be either unset or set to a non-empty string"
            report.invalid(f"{path}.nodeName", name, detail)
    if (selector := spec.get("nodeSelector")) is not None:
        found.append("`nodeSelector`")
        scheduling.node_selector(report, selector, f"{path}.nodeSelector")
        if len(terms := selector.get("nodeSelectorTerms") or []) != 1:
            where = f"{path}.nodeSelector.nodeSelectorTerms"
            report.invalid(where, terms, "must have exactly one node selector term")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            found.append(f"`{field}`")
        elif spec.get(field) is not None:
            report.invalid(f"{path}.{field}", False, "must be either unset or set to true")
    needed = (
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is "
        "required"
    )
    if not found:
        report.required(path, needed)
    elif len(found) > 1:
        reported = "{" + ", ".join(found) + "}"
        report.invalid(path, reported, f"{needed}, but multiple fields are set")


def _pool_name(report: Report, name: str, path: str) -> None:
    """Subdomains with slashes between them."""
    if not name:
        report.required(path)
        return
    if len(name) > MAX_POOL_NAME:
        report.too_long(path, MAX_POOL_NAME)
    for part in name.split("/"):
        report.all_invalid(path, part, formats.dns_subdomain(part))


def _driver_name(report: Report, name: str, path: str) -> None:
    """A driver's name: the same rules as for CSI drivers."""
    if name:
        persistent_volumes.driver_name(report, name, path)
    else:
        report.required(path)


def _referenced_driver(report: Report, name: str, path: str) -> None:
    if name:
        persistent_volumes.referenced_driver(report, name, path)
    else:
        report.required(path)


def _qualified_name(report: Report, name: str, path: str) -> None:
    """Check a name of the form ``name`` or ``domain/name``."""
    domain, slash, identifier = name.rpartition("/")
    if slash and not domain:
        report.invalid(path, "", "the domain must not be empty")
    elif slash:
        _driver_name(report, domain, path)
    if slash and not identifier:
        report.invalid(path, "", "the name must not be empty")
        return
    if len(identifier) > MAX_ID:
        report.too_long(path, MAX_ID)
    if not (identifier.isascii() and identifier.isidentifier()):
        report.invalid(path, identifier, _C_IDENTIFIER)


def _tolerations(report: Report, supplied: Iterable[JSON], path: str) -> None:
    """Tolerations of device taints."""
    for index, each in enumerate(supplied):
        where, operator = f"{path}[{index}]", each.get("operator")
        key, value = each.get("key") or "", each.get("value") or ""
        if key:
            report.all_invalid(f"{where}.key", key, formats.qualified_name(key))
        report.one_of(f"{where}.operator", operator, ("Equal", "Exists"))
        if operator == "Exists" and value:
            report.invalid(f"{where}.value", value, "must be empty for operator `Exists`")
        elif operator == "Equal":
            report.all_invalid(f"{where}.value", value, formats.label_value(value))
        if each.get("effect") and each["effect"] not in _EFFECTS:
            report.unsupported(f"{where}.effect", each["effect"], _EFFECTS)


def _unique(
    report: Report,
    supplied: list[JSON] | None,
    name: Callable[[JSON], Any],
    path: str,
    *,
    whole: bool = False,
) -> None:
    """No item occurs twice in a list; ``whole``: the cause shows the item, not its name."""
    seen: list[Any] = []
    for index, each in enumerate(supplied or ()):
        if (found := name(each)) in seen:
            report.duplicate(f"{path}[{index}]", each if whole else found)
        seen.append(found)


def _devices(report: Report, devices: JSON, path: str) -> None:
    requests = devices.get("requests") or []
    names = _names(requests)
    report.at_most(f"{path}.requests", requests, MAX_REQUESTS)
    _unique(report, requests, lambda each: each.get("name"), f"{path}.requests", whole=True)
    for index, request in enumerate(requests):
        _request(report, request, f"{path}.requests[{index}]")
    constraints = devices.get("constraints") or []
    report.at_most(f"{path}.constraints", constraints, MAX_CONSTRAINTS)
    for index, constraint in enumerate(constraints):
        _constraint(report, constraint, names, f"{path}.constraints[{index}]")
    configs = devices.get("config") or []
    report.at_most(f"{path}.config", configs, MAX_CONFIGS)
    for index, config in enumerate(configs):
        _references(report, config.get("requests"), names, f"{path}.config[{index}].requests")
        _opaque(report, config, f"{path}.config[{index}]")


def _names(requests: Iterable[JSON]) -> set[str]:
    """Valid references: the names of requests, and of alternatives as ``request/alternative``."""
    found = set()
    for request in requests:
        name = request.get("name") or ""
        found.add(name)
        found.update(f"{name}/{each.get('name')}" for each in request.get("firstAvailable") or ())
    return found


def _request(report: Report, request: JSON, path: str) -> None:
    name, exactly = request.get("name") or "", request.get("exactly")
    alternatives = request.get("firstAvailable") or []
    report.all_invalid(f"{path}.name", name, formats.dns_label(name))
    needed = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        report.required(path, needed)
    elif exactly is not None and alternatives:
        report.invalid(path, None, f"{needed}, but multiple fields are set")
    elif exactly is not None:
        _desired(report, exactly, f"{path}.exactly")
    else:
        where = f"{path}.firstAvailable"
        report.at_most(where, alternatives, MAX_ALTERNATIVES)
        _unique(report, alternatives, lambda each: each.get("name"), where)
        for index, each in enumerate(alternatives):
            other = each.get("name") or ""
            report.all_invalid(f"{where}[{index}].name", other, formats.dns_label(other))
            _desired(report, each, f"{where}[{index}]")


def _desired(report: Report, request: JSON, path: str) -> None:
    named, mode = request.get("deviceClassName") or "", request.get("allocationMode")
    report.well_formed(f"{path}.deviceClassName", named, formats.dns_subdomain)
    _selectors(report, request.get("selectors") or [], f"{path}.selectors")
    count = request.get("count") or 0
    if mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        report.invalid(f"{path}.count", count, detail)
    elif mode == "ExactCount" and count <= 0:
        report.invalid(f"{path}.count", count, "must be greater than zero")
    elif mode not in _MODES:
        report.unsupported(f"{path}.allocationMode", mode, _MODES)
    for name, amount in ((request.get("capacity") or {}).get("requests") or {}).items():
        amounts.quantity(report, amount, f"{path}.capacity.requests[{name}]")
    report.at_most(f"{path}.tolerations", request.get("tolerations"), MAX_TOLERATIONS)
    _tolerations(report, request.get("tolerations") or (), f"{path}.tolerations")


def _selectors(report: Report, selectors: list[JSON], path: str) -> None:
    report.at_most(path, selectors, MAX_SELECTORS)
    for index, selector in enumerate(selectors):
        where = f"{path}[{index}].cel"
        if selector.get("cel") is None:
            report.required(where)
            continue
        expression = selector["cel"].get("expression") or ""
        if len(expression) > MAX_EXPRESSION:
            report.too_long(f"{where}.expression", MAX_EXPRESSION)
        elif not expression:
            report.required(f"{where}.expression")


def _constraint(report: Report, constraint: JSON, names: Container[str], path: str) -> None:
    _references(report, constraint.get("requests"), names, f"{path}.requests")
    supplied = [key for key in ("matchAttribute", "distinctAttribute") if constraint.get(key)]
    if len(supplied) != 1:
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
        report.required(path, f"{detail}, but multiple fields are set")  # also if none is set
    for key in supplied:
        name = constraint[key]
        _qualified_name(report, name, f"{path}.{key}")
        if "/" not in name:
            detail = "a fully qualified name must be a domain and a name separated by a slash"
            report.invalid(f"{path}.{key}", name, detail)


def _references(
    report: Report, supplied: list[str] | None, names: Container[str], path: str
) -> None:
    report.at_most(path, supplied, MAX_REQUESTS)
    for index, name in enumerate(supplied or ()):
        _reference(report, name, names, f"{path}[{index}]")
        if name in (supplied or [])[:index]:
            report.duplicate(f"{path}[{index}]", name)


def _reference(report: Report, name: str, names: Container[str], path: str) -> None:
    segments = name.split("/")
    if len(segments) <= 2:
        for segment in segments:
            report.all_invalid(path, segment, formats.dns_label(segment))
    if name not in names:
        report.invalid(path, name, _REFERENCE)


def _opaque(report: Report, config: JSON, path: str) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        report.required(f"{path}.opaque")
        return
    _referenced_driver(report, opaque.get("driver") or "", f"{path}.opaque.driver")
    parameters, where = opaque.get("parameters"), f"{path}.opaque.parameters"
    if parameters is None:
        report.required(where)
    elif not isinstance(parameters, dict):
        report.invalid(where, "<value omitted>", "must be a valid JSON object")
    elif len(json.dumps(parameters, separators=(",", ":"))) > MAX_PARAMETERS:
        report.too_long(where, MAX_PARAMETERS)


def _status(report: Report, new: JSON, old: JSON) -> None:
    status, before = new.get("status") or {}, old.get("status") or {}
    reserved, where = status.get("reservedFor") or [], "status.reservedFor"
    report.at_most(where, reserved, MAX_RESERVED)
    _unique(report, reserved, lambda each: each.get("uid"), where)
    for index, consumer in enumerate(reserved):
        report.require(f"{where}[{index}]", consumer, "resource", "name", "uid")
    allocation = status.get("allocation")
    if reserved and allocation is None:
        report.forbidden(where, "may not be specified when `allocated` is not set")
    elif new["metadata"].get("deletionTimestamp"):
        known = before.get("reservedFor") or []
        if any(each not in known for each in reserved):
            detail = "`deallocationRequested` or `deletionTimestamp` are set"
            report.forbidden(where, f"new entries may not be added while {detail}")
    if allocation is None:
        return
    if before.get("allocation") is None:
        _allocation(report, new, allocation)
    elif allocation != before["allocation"]:
        report.invalid("status.allocation", allocation, _IMMUTABLE)


def _allocation(report: Report, obj: JSON, allocation: JSON) -> None:
    names = _names(((obj.get("spec") or {}).get("devices") or {}).get("requests") or ())
    devices, path = allocation.get("devices") or {}, "status.allocation.devices"
    report.at_most(f"{path}.results", devices.get("results"), MAX_RESULTS)
    for index, result in enumerate(devices.get("results") or ()):
        where = f"{path}.results[{index}]"
        _reference(report, result.get("request") or "", names, f"{where}.request")
        _referenced_driver(report, result.get("driver") or "", f"{where}.driver")
        _pool_name(report, result.get("pool") or "", f"{where}.pool")
        device = result.get("device") or ""
        report.all_invalid(f"{where}.device", device, formats.dns_label(device))
    report.at_most(f"{path}.config", devices.get("config"), 2 * MAX_CONFIGS)
    for index, config in enumerate(devices.get("config") or ()):
        where = f"{path}.config[{index}]"
        report.one_of(f"{where}.source", config.get("source"), ("FromClaim", "FromClass"))
        _references(report, config.get("requests"), names, f"{where}.requests")
        _opaque(report, config, where)
    if allocation.get("nodeSelector") is not None:
        where = "status.allocation.nodeSelector"
        scheduling.node_selector(report, allocation["nodeSelector"], where)

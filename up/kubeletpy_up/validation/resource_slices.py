"""ResourceSlices: which devices a driver has on which nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import amounts, scheduling
from kubeletpy_up.validation.device_claims import (
    EFFECTS,
    driver_name,
    pool_name,
    qualified_name,
    unique,
)
from kubeletpy_up.validation.request_policies import request_policy

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

MAX_DEVICES, MAX_DEVICES_WITH_MORE = 128, 64
MAX_COUNTER_SETS, MAX_COUNTERS, MAX_COUNTER_USES = 8, 32, 2
MAX_ATTRIBUTES, MAX_TAINTS, MAX_VALUE = 32, 16, 64
_VALUES = ("bool", "int", "string", "version")
_LISTS = ("bools", "ints", "strings", "versions")
_MEMBERS = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_ONE_OF = ", ".join(f"`{key}`" for key in _MEMBERS)
_IMMUTABLE = "field is immutable"
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def resource_slice(report: Report, obj: JSON) -> None:
    """Check the spec of a ResourceSlice."""
    spec = obj.get("spec") or {}
    driver_name(report, spec.get("driver") or "", "spec.driver")
    pool = spec.get("pool") or {}
    pool_name(report, pool.get("name") or "", "spec.pool.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        report.invalid("spec.pool.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        detail = "must be greater than or equal to zero"
        report.invalid("spec.pool.generation", generation, detail)
    _where(report, spec, "spec")
    devices = spec.get("devices")
    if devices and spec.get("sharedCounters"):
        report.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    _devices(report, devices or [], per_device=bool(spec.get("perDeviceNodeSelection")))
    _counter_sets(report, spec.get("sharedCounters") or [])


def changed(report: Report, new: JSON, old: JSON) -> None:
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


def _devices(report: Report, devices: list[JSON], *, per_device: bool) -> None:
    with_more = any(
        each.get("taints") or each.get("consumesCounters") or _has_lists(each) for each in devices
    )
    limit = MAX_DEVICES_WITH_MORE if with_more else MAX_DEVICES
    if len(devices) > limit:
        report.too_many("spec.devices", len(devices), limit)
    unique(report, devices, lambda each: each.get("name"), "spec.devices")
    for index, device in enumerate(devices):
        where, name = f"spec.devices[{index}]", device.get("name") or ""
        report.all_invalid(f"{where}.name", name, formats.dns_label(name))
        _facts(report, device, where)
        _taints(report, device.get("taints") or [], f"{where}.taints")
        _uses(report, device.get("consumesCounters") or [], f"{where}.consumesCounters")
        stated = [key for key in ("nodeName", "nodeSelector", "allNodes") if key in device]
        if per_device and len(stated) != 1:
            detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
            detail += " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            report.required(where, detail)
        elif stated and not per_device:
            detail = "`nodeName`, `nodeSelector` and `allNodes` can only be specified when"
            report.invalid(where, "", f"{detail} `perDeviceNodeSelection` is set to true")


def _has_lists(device: JSON) -> bool:
    return any(key in each for each in (device.get("attributes") or {}).values() for key in _LISTS)


def _facts(report: Report, device: JSON, path: str) -> None:
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > MAX_ATTRIBUTES:
        detail = f"the total number of attributes and capacities must not exceed {MAX_ATTRIBUTES}"
        report.invalid(path, count, detail)
    for name, value in attributes.items():
        where = f"{path}.attributes[{name}]"
        qualified_name(report, name, f"{path}.attributes")
        supplied = [key for key in (*_VALUES, *_LISTS) if value.get(key) is not None]
        if not supplied:
            report.invalid(where, "", f"must specify one of: {_ONE_OF}")
        elif len(supplied) > 1:
            reported = "{" + ", ".join(key for key in _MEMBERS if key in supplied) + "}"
            report.invalid(where, reported, f"must specify exactly one of: {_ONE_OF}")
        for key in supplied:
            listed = value[key] if key in _LISTS else [value[key]]
            if not listed:
                report.invalid(f"{where}.{key}", [], "must not be empty if specified")
            _texts(report, listed, f"{where}.{key}", version=key.startswith("version"))
    shared = bool(device.get("allowMultipleAllocations"))
    for name, value in capacity.items():
        where, before = f"{path}.capacity[{name}]", len(report.causes)
        qualified_name(report, name, f"{path}.capacity")
        amounts.quantity(report, value.get("value"), f"{where}.value")
        if len(report.causes) == before:
            request_policy(report, value, f"{where}.requestPolicy", shared=shared)


def _texts(report: Report, supplied: Iterable[Any], path: str, *, version: bool) -> None:
    for value in supplied:
        if not isinstance(value, str):
            continue
        if version and _SEMVER.fullmatch(value) is None:
            detail = "must be a string compatible with semver.org spec 2.0.0"
            report.invalid(path, value, detail)
        if len(value) > MAX_VALUE:
            report.too_long(path, MAX_VALUE)


def _taints(report: Report, taints: list[JSON], path: str) -> None:
    report.at_most(path, taints, MAX_TAINTS)
    for index, taint in enumerate(taints):
        where, key = f"{path}[{index}]", taint.get("key") or ""
        report.all_invalid(f"{where}.key", key, formats.qualified_name(key))
        value = taint.get("value") or ""
        report.all_invalid(f"{where}.value", value, formats.label_value(value))
        report.one_of(f"{where}.effect", taint.get("effect"), EFFECTS)


def _uses(report: Report, uses: list[JSON], path: str) -> None:
    report.at_most(path, uses, MAX_COUNTER_USES)
    for index, use in enumerate(uses):
        report.require(f"{path}[{index}]", use, "counterSet")
        _counters(report, use.get("counters") or {}, f"{path}[{index}].counters")


def _counter_sets(report: Report, sets: list[JSON]) -> None:
    path = "spec.sharedCounters"
    report.at_most(path, sets, MAX_COUNTER_SETS)
    unique(report, sets, lambda each: each.get("name"), path)
    for index, each in enumerate(sets):
        name = each.get("name") or ""
        report.well_formed(f"{path}[{index}].name", name, formats.dns_label)
        _counters(report, each.get("counters") or {}, f"{path}[{index}].counters")


def _counters(report: Report, counters: JSON, path: str) -> None:
    if not counters:
        report.required(path)
    report.at_most(path, counters, MAX_COUNTERS)
    for name, counter in counters.items():
        report.all_invalid(path, name, formats.dns_label(name))
        amounts.quantity(report, counter.get("value"), f"{path}[{name}].value")

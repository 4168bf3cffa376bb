"""Resource names and amounts: requests, limits, claims, resize policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy.pods.resources import COMPUTE, HUGEPAGES_PREFIX
from kubeletpy_up.defaults.pods import of_containers
from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report


_STANDARD = ("cpu", "memory", "ephemeral-storage")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def quantity(report: Report, value: Any, path: str) -> None:
    """A quantity that is not negative."""
    try:
        number, _ = formats.read(str(value))
    except ValueError as error:
        report.invalid(path, value, str(error))
        return
    if number < 0:
        report.invalid(path, value, "must be greater than or equal to 0")


_NATIVE, _QUOTA = "kubernetes.io/", "requests."


def is_extended(name: str) -> bool:
    """A resource that a device plugin or an administrator advertises: ``vendor.com/thing``."""
    prefix, separator, _ = name.rpartition("/")
    return bool(separator) and not (prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io"))


def not_extended(name: str) -> list[str]:
    """Why a device class may not have this extended resource's name; empty: it may."""
    found = []
    if "/" not in name:
        found.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif _NATIVE in name:
        found.append(f'must not have "{_NATIVE}" domain')
    if name.startswith(_QUOTA):
        found.append(f'must not have "{_QUOTA}" prefix')
    return [*found, *formats.qualified_name(_QUOTA + name)]


def _name(report: Report, name: str, path: str) -> None:
    details = formats.qualified_name(name)
    report.all_invalid(path, name, details)
    if details:
        return
    if "/" not in name:
        if name not in _STANDARD and not name.startswith("hugepages-"):
            report.invalid(path, name, "must be a standard resource type or fully qualified")
            report.invalid(path, name, "must be a standard resource for containers")
    elif name.startswith("requests."):
        report.invalid(path, name, "doesn't follow extended resource name standard")


def _list(report: Report, amounts: JSON, path: str) -> None:
    for name, amount in amounts.items():
        where = f"{path}[{name}]"
        if name not in _STANDARD:
            _name(report, name, where)
        quantity(report, amount, where)
        if is_extended(name) and "/" in name and formats.milli(str(amount)) % 1000:
            report.invalid(where, amount, "must be an integer")


def requirements(report: Report, supplied: JSON, path: str, claims: set[str]) -> None:
    """A container's or pod's resources: names, amounts, and no request above its limit."""
    requests, limits = supplied.get("requests") or {}, supplied.get("limits") or {}
    before = len(report.causes)
    _list(report, limits, f"{path}.limits")
    _list(report, requests, f"{path}.requests")
    if len(report.causes) == before:
        for name, amount in requests.items():
            _request(report, name, amount, limits.get(name), path)
    for index, claim in enumerate(supplied.get("claims") or ()):
        if claim.get("name") not in claims:
            report.not_found(f"{path}.claims[{index}]", claim.get("name") or "")


def _request(report: Report, name: str, amount: Any, limit: Any, path: str) -> None:
    overcommit = not (is_extended(name) or name.startswith("hugepages-"))
    where = f"{path}.requests"
    if limit is None:
        if not overcommit:
            report.required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        return
    requested, allowed = formats.read(str(amount))[0], formats.read(str(limit))[0]
    if not overcommit and requested != allowed:
        report.invalid(where, amount, f"must be equal to {name} limit of {limit}")
    elif requested > allowed:
        report.invalid(where, amount, f"must be less than or equal to {name} limit of {limit}")


def resize_policies(report: Report, supplied: list[JSON], path: str, pod_policy: str) -> None:
    """Check a container's ``resizePolicy``."""
    seen: set[str] = set()
    for index, policy in enumerate(supplied):
        name, action = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if name in seen:
            report.duplicate(f"{path}[{index}]", name)
        seen.add(name)
        report.supported(f"{path}[{index}].resourceName", name, COMPUTE)
        report.one_of(f"{path}[{index}].restartPolicy", action, _RESIZE_POLICIES)
        if pod_policy == "Never" and action != "NotRequired":
            detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            report.invalid(path, action, detail)


def consistency(report: Report, spec: JSON) -> None:
    """Pod-level resources (KEP-2837): no container has more than its pod, nor have all together."""
    own: JSON = spec["resources"]
    for kind in ("requests", "limits"):
        amounts = own.get(kind) or {}
        for name, total in of_containers(spec, kind).items():
            if kind == "limits" and not name.startswith(HUGEPAGES_PREFIX):
                continue
            if name in amounts and _more(total, amounts[name]):
                detail = f"must be greater than or equal to aggregate container {kind} of {total}"
                report.invalid(f"spec.resources.{kind}[{name}]", amounts[name], detail)
    limits = own.get("limits") or {}
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and _more(limit, limits[name]):
                path = f"spec.resources.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                report.invalid(path, limit, detail)


def _more(one: Any, other: Any) -> bool:
    """Whether one quantity is larger; false when one is malformed, which is reported elsewhere."""
    try:
        return formats.read(str(one))[0] > formats.read(str(other))[0]
    except ValueError:
        return False

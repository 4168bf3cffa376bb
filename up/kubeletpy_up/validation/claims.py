"""PersistentVolumeClaims: what one may request, and what may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats
from kubeletpy_up.validation.metadata import label_selector

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
"""The annotation that held a claim's class before there was a field."""
_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
_RESIZE_STATUSES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


def claim(report: Report, obj: JSON) -> None:
    """Check the spec of a PersistentVolumeClaim."""
    spec(report, obj.get("spec") or {}, "spec")


def spec(report: Report, supplied: JSON, path: str) -> None:
    """The request, in a claim or in the template of one."""
    access_modes(report, supplied, path, "at least 1 access mode is required")
    if supplied.get("selector") is not None:
        label_selector(report, supplied["selector"], f"{path}.selector")
    amount = ((supplied.get("resources") or {}).get("requests") or {}).get("storage")
    if amount is None:
        report.required(f"{path}.resources[storage]")
    else:
        positive(report, amount, f"{path}.resources[storage]")
    _class(report, supplied.get("storageClassName"), f"{path}.storageClassName")
    _class(report, supplied.get("volumeAttributesClassName"), f"{path}.volumeAttributesClassName")
    volume_mode(report, supplied, path)
    source, reference = supplied.get("dataSource"), supplied.get("dataSourceRef")
    for field, value in (("dataSource", source), ("dataSourceRef", reference)):
        if value is not None:
            report.require(f"{path}.{field}", value, "name", "kind")
    if source is not None and reference is not None and not _same_source(source, reference):
        report.invalid_text(path, "{}", "must match dataSourceRef")


def access_modes(report: Report, supplied: JSON, path: str, needed: str) -> None:
    """``accessModes`` of a claim or a volume."""
    modes = supplied.get("accessModes") or []
    if not modes:
        report.required(f"{path}.accessModes", needed)
    for mode in modes:
        report.supported(f"{path}.accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        report.forbidden(f"{path}.accessModes", detail)


def volume_mode(report: Report, supplied: JSON, path: str) -> None:
    """``volumeMode`` of a claim or a volume."""
    mode = supplied.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        report.unsupported(f"{path}.volumeMode", mode, VOLUME_MODES)


def positive(report: Report, amount: Any, path: str) -> None:
    """An amount of something."""
    if formats.read(str(amount))[0] <= 0:
        report.invalid(path, amount, "must be greater than zero")


def not_negative(report: Report, amounts: JSON | None, path: str) -> None:
    """Amounts, each by its name."""
    for name, amount in (amounts or {}).items():
        value = formats.read(str(amount))[0]
        if value < 0:
            report.invalid_text(
                f"{path}[{name}]", f"{value.normalize():f}", "must be a valid resource quantity"
            )


def class_name(report: Report, name: str, path: str) -> None:
    """The name of a class."""
    report.all_invalid(path, name, formats.dns_subdomain(name))


def _class(report: Report, name: str | None, path: str) -> None:
    if name:
        class_name(report, name, path)


def _same_source(source: JSON, reference: JSON) -> bool:
    keys = ("apiGroup", "kind", "name")
    return [source.get(k) or "" for k in keys] == [reference.get(k) or "" for k in keys]


def changed(report: Report, new: JSON, old: JSON) -> None:
    """Check an update: a claim may change its size when bound, its class when it has none."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    compared = dict(after)
    if not before.get("volumeName"):
        compared["volumeName"] = before.get("volumeName")
    if before.get("storageClassName") is None and not _beta_class(old):
        compared["storageClassName"] = None
    compared["volumeAttributesClassName"] = before.get("volumeAttributesClassName")
    if (new.get("status") or {}).get("phase") == "Bound":
        compared["resources"] = _with_storage(after.get("resources"), before.get("resources"))
    if _plain(compared) != _plain(before):
        report.forbidden("spec", _IMMUTABLE)
    size, was = _storage(after), _storage(before)
    has = ((old.get("status") or {}).get("capacity") or {}).get("storage") or "0"
    if size < was and size <= formats.read(str(has))[0]:
        detail = "field can not be less than status.capacity"
        report.forbidden("spec.resources.requests.storage", detail)
    if after.get("volumeMode") != before.get("volumeMode"):
        report.invalid("volumeMode", after.get("volumeMode"), "field is immutable")


def status(report: Report, new: JSON) -> None:
    """A claim's status: amounts, and the progress of an expansion."""
    supplied = new.get("status") or {}
    not_negative(report, supplied.get("capacity"), "status.capacity")
    not_negative(report, supplied.get("allocatedResources"), "status.allocatedResources")
    for name, value in (supplied.get("allocatedResourceStatuses") or {}).items():
        if value not in _RESIZE_STATUSES:
            report.unsupported("status.allocatedResourceStatuses", name, _RESIZE_STATUSES)


def _beta_class(obj: JSON) -> str | None:
    return ((obj.get("metadata") or {}).get("annotations") or {}).get(BETA_CLASS)


def _with_storage(after: JSON | None, before: JSON | None) -> JSON:
    requests = dict((after or {}).get("requests") or {})
    known = ((before or {}).get("requests") or {}).get("storage")
    return {**(after or {}), "requests": {**requests, "storage": known}}


def _plain(supplied: JSON) -> JSON:
    return {key: value for key, value in supplied.items() if value not in (None, "")}


def _storage(supplied: JSON) -> Any:
    amount = ((supplied.get("resources") or {}).get("requests") or {}).get("storage") or "0"
    return formats.read(str(amount))[0]

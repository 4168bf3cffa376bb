"""The kinds of storage.k8s.io: classes, drivers, nodes' drivers, attachments, capacities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import claims, persistent_volumes, volumes
from kubeletpy_up.validation.metadata import label_selector

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_BINDING_MODES = ("Immediate", "WaitForFirstConsumer")
_RECLAIM = ("Delete", "Retain")
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLES = ("Persistent", "Ephemeral")
_MAX_PARAMETERS, _MAX_PARAMETERS_SIZE = 512, 256 * 1024
_MAX_NODE_ID, _MAX_METADATA_SIZE = 256, 256 * 1024
_MIN_UPDATE_SECONDS = 10
_IMMUTABLE = "field is immutable"


def storage_class(report: Report, obj: JSON) -> None:
    """Check the fields of a StorageClass."""
    parameters = obj.get("parameters") or {}
    report.at_most("parameters", parameters, _MAX_PARAMETERS)
    if "" in parameters:
        report.invalid("parameters", "", "field can not be empty.")
    if sum(len(key) + len(value) for key, value in parameters.items()) > _MAX_PARAMETERS_SIZE:
        report.too_long("parameters", _MAX_PARAMETERS_SIZE)
    policy = obj.get("reclaimPolicy") or ""
    if policy and policy not in _RECLAIM:
        report.unsupported("reclaimPolicy", policy, _RECLAIM)
    report.one_of("volumeBindingMode", obj.get("volumeBindingMode"), _BINDING_MODES)
    _topologies(report, obj.get("allowedTopologies") or [])
    provisioner = obj.get("provisioner") or ""
    if not provisioner:
        report.required("provisioner")
    else:
        details = formats.qualified_name(provisioner.lower())
        report.all_invalid("provisioner", provisioner, details)


def _topologies(report: Report, terms: list[JSON]) -> None:
    seen: list[Any] = []
    for index, term in enumerate(terms):
        where = f"allowedTopologies[{index}].matchLabelExpressions"
        expressions = term.get("matchLabelExpressions") or []
        keys: set[str] = set()
        for number, expression in enumerate(expressions):
            key, values = expression.get("key") or "", expression.get("values") or []
            report.all_invalid(f"{where}[{number}].key", key, formats.qualified_name(key))
            if not values:
                report.required(f"{where}[{number}].values")
            if key in keys:
                report.duplicate(f"{where}[{number}].key", key)
            keys.add(key)
        known = {e.get("key"): sorted(e.get("values") or ()) for e in expressions}
        if known in seen:
            report.duplicate(where, "")
        seen.append(known)


def storage_class_changed(report: Report, new: JSON, old: JSON) -> None:
    """Only a class's volume expansion and its allowed topologies may change."""
    for field in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
        if (new.get(field) or None) != (old.get(field) or None):
            report.invalid(field, None, _IMMUTABLE)


def csi_driver(report: Report, obj: JSON) -> None:
    """Check the spec of a CSIDriver."""
    spec = obj.get("spec") or {}
    policy = spec.get("fsGroupPolicy") or ""
    if policy and policy not in _GROUP_POLICIES:
        report.unsupported("spec.fsGroupPolicy", policy, _GROUP_POLICIES)
    audiences: set[str] = set()
    for index, request in enumerate(spec.get("tokenRequests") or ()):
        where = f"spec.tokenRequests[{index}]"
        audience = request.get("audience") or ""
        if audience in audiences:
            report.duplicate(f"{where}.audience", audience)
        audiences.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None:
            volumes.token_lifetime(report, seconds, f"{where}.expirationSeconds")
    for mode in spec.get("volumeLifecycleModes") or ():
        report.supported("spec.volumeLifecycleModes", mode, _LIFECYCLES)
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < _MIN_UPDATE_SECONDS:
        detail = f"must be greater than or equal to {_MIN_UPDATE_SECONDS} seconds"
        report.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail)


def csi_driver_changed(report: Report, new: JSON, old: JSON) -> None:
    """How a driver's volumes are attached, and their lifecycle, is immutable."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    for field, reported in (
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ):
        if after.get(field) != before.get(field):
            report.invalid(f"spec.{reported}", after.get(field), _IMMUTABLE)


def csi_node(report: Report, obj: JSON) -> None:
    """A CSINode: each driver once, with the node's id."""
    names: set[str] = set()
    for index, driver in enumerate((obj.get("spec") or {}).get("drivers") or ()):
        where = f"spec.drivers[{index}]"
        name, node_id = driver.get("name") or "", driver.get("nodeID") or ""
        if not name:
            report.required(f"{where}.name")
        else:
            persistent_volumes.driver_name(report, name, f"{where}.name")
        if not node_id:
            report.required(f"{where}.nodeID")
        elif len(node_id) > _MAX_NODE_ID:
            report.invalid(f"{where}.nodeID", node_id, f"must be {_MAX_NODE_ID} characters or less")
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            detail = "must be greater than or equal to 0"
            report.invalid(f"{where}.allocatable.count", count, detail)
        if name in names:
            report.duplicate(f"{where}.name", name)
        names.add(name)
        _topology_keys(report, driver.get("topologyKeys") or [], where)


def _topology_keys(report: Report, supplied: list[str], where: str) -> None:
    keys: set[str] = set()
    for key in supplied:
        if not key:
            report.required(where)
        if key in keys:
            report.duplicate(where, key)
        keys.add(key)
        report.all_invalid(where, key, formats.qualified_name(key))


def csi_node_changed(report: Report, new: JSON, old: JSON) -> None:
    """A known driver keeps its id and keys; how many volumes it accepts may change."""
    known = {d.get("name"): d for d in (old.get("spec") or {}).get("drivers") or ()}
    for driver in (new.get("spec") or {}).get("drivers") or ():
        before = known.get(driver.get("name"))
        if before is not None and _identity(driver) != _identity(before):
            report.invalid("spec.drivers", driver, _IMMUTABLE)


def _identity(driver: JSON) -> tuple[str, list[str]]:
    return driver.get("nodeID") or "", driver.get("topologyKeys") or []


def volume_attachment(report: Report, obj: JSON) -> None:
    """A VolumeAttachment: who attaches what to which node."""
    spec = obj.get("spec") or {}
    attacher, node = spec.get("attacher") or "", spec.get("nodeName") or ""
    if attacher:
        persistent_volumes.referenced_driver(report, attacher, "spec.attacher")
    _attached_source(report, spec.get("source") or {})
    report.all_invalid("spec.nodeName", node, formats.dns_subdomain(node))
    if not attacher:
        report.required("spec.attacher")
    status = obj.get("status") or {}
    size = sum(len(k) + len(v) for k, v in (status.get("attachmentMetadata") or {}).items())
    if size > _MAX_METADATA_SIZE:
        report.too_long("status.attachmentMetadata", _MAX_METADATA_SIZE)


def _attached_source(report: Report, source: JSON) -> None:
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if name is None and inline is None:
        report.required("spec.source", detail)
    elif name is not None and inline is not None:
        report.forbidden("spec.source", detail)
    elif name is not None:
        where = "spec.source.persistentVolumeName"
        if not name:
            report.required(where, "must specify non empty persistentVolumeName")
        report.all_invalid(where, name, formats.dns_subdomain(name))
    elif inline is not None:
        where = "spec.source.inlineVolumeSpec"
        if inline.get("capacity"):
            detail = "may not be specified in the context of inline volumes"
            report.forbidden(f"{where}.capacity", detail)
        if inline.get("csi") is None:
            detail = "has to be specified in the context of inline volumes"
            report.required(f"{where}.csi", detail)
        else:
            persistent_volumes.csi(report, inline["csi"], f"{where}.csi")


def volume_attachment_changed(report: Report, new: JSON, old: JSON) -> None:
    """A volume attachment's spec is immutable."""
    if new.get("spec") != old.get("spec"):
        report.invalid("spec", None, _IMMUTABLE)


def storage_capacity(report: Report, obj: JSON) -> None:
    """Check the fields of a CSIStorageCapacity."""
    if obj.get("nodeTopology") is not None:
        label_selector(report, obj["nodeTopology"], "nodeTopology")
    claims.class_name(report, obj.get("storageClassName") or "", "storageClassName")
    for field in ("capacity", "maximumVolumeSize"):
        amount = obj.get(field)
        if amount is not None and formats.read(str(amount))[0] < 0:
            report.invalid(field, amount, "must be greater than or equal to 0")


def storage_capacity_changed(report: Report, new: JSON, old: JSON) -> None:
    """The class and topology of a capacity are immutable."""
    for field in ("nodeTopology", "storageClassName"):
        if new.get(field) != old.get(field):
            report.invalid(field, new.get(field), _IMMUTABLE)

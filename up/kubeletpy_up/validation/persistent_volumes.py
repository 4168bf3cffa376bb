"""PersistentVolumes: their sources, where they are accessible, and what may change."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import claims, scheduling, volumes
from kubeletpy_up.validation.report import quote

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

POLICIES = ("Delete", "Recycle", "Retain")
_MOUNT_OPTIONS = "volume.beta.kubernetes.io/mount-options"
_WITH_MOUNT_OPTIONS = frozenset(
    {"nfs", "iscsi", "csi", "rbd", "cephfs", "glusterfs", "azureFile", "azureDisk"}
    | {"awsElasticBlockStore", "gcePersistentDisk", "cinder", "vsphereVolume", "quobyte"}
)
_NOT_SOURCES = frozenset({"capacity", "claimRef", "nodeAffinity"})
_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
_MAX_LUN = 255
_IQN = re.compile(r"iqn\.\d{4}-\d{2}\.([a-zA-Z0-9.-]+)(:[^,;*&$|\s]+)$")
_EUI, _NAA = re.compile(r"eui\.[0-9a-zA-Z]{16}$"), re.compile(r"naa\.[0-9a-zA-Z]{32}$")


def source_kinds(spec: JSON) -> list[str]:
    """The fields of a volume's spec that are sources: one, if it is valid."""
    return [k for k, v in spec.items() if isinstance(v, dict) and k not in _NOT_SOURCES]


def volume(report: Report, obj: JSON) -> None:
    """Check the spec of a PersistentVolume."""
    spec = obj.get("spec") or {}
    _spec(report, spec)
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    kinds = source_kinds(spec)
    if _MOUNT_OPTIONS in annotations and not _WITH_MOUNT_OPTIONS & set(kinds):
        detail = "may not specify mount options for this volume type"
        report.forbidden(f"metadata.annotations.{_MOUNT_OPTIONS}", detail)


def _spec(report: Report, spec: JSON) -> None:
    claims.access_modes(report, spec, "spec", "")
    capacity = spec.get("capacity") or {}
    if not capacity:
        report.required("spec.capacity")
    if set(capacity) != {"storage"}:
        reported = dict(sorted(capacity.items())) or None
        report.unsupported("spec.capacity", reported, ("storage",))
    else:
        claims.not_negative(report, capacity, "spec.capacity")
        claims.positive(report, capacity["storage"], "spec.capacity[storage]")
    policy = spec.get("persistentVolumeReclaimPolicy") or ""
    if policy and policy not in POLICIES:
        report.unsupported("spec.persistentVolumeReclaimPolicy", policy, POLICIES)
    if spec.get("nodeAffinity") is not None:
        _affinity(report, spec["nodeAffinity"])
    kinds = source_kinds(spec)
    if not kinds:
        report.required("spec", "must specify a volume type")
    else:
        source(report, kinds[0], spec[kinds[0]], f"spec.{kinds[0]}")
    for extra in kinds[1:]:
        report.forbidden(f"spec.{extra}", "may not specify more than 1 volume type")
    if "local" in kinds and not spec.get("nodeAffinity"):
        report.required("spec.nodeAffinity", "Local volume requires node affinity")
    if (spec.get("hostPath") or {}).get("path") == "/" and policy == "Recycle":
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        report.forbidden("spec.persistentVolumeReclaimPolicy", detail)
    if spec.get("storageClassName"):
        claims.class_name(report, spec["storageClassName"], "spec.storageClassName")
    claims.volume_mode(report, spec, "spec")
    if spec.get("volumeAttributesClassName") is not None and "csi" not in kinds:
        detail = "has to be specified when using volumeAttributesClassName"
        report.required("spec.csi", detail)


def _affinity(report: Report, supplied: JSON) -> None:
    if supplied.get("required") is None:
        report.required("spec.nodeAffinity.required", "must specify required node constraints")
    else:
        scheduling.node_selector(report, supplied["required"], "spec.nodeAffinity.required")


def source(report: Report, kind: str, supplied: JSON, path: str) -> None:
    """A volume's source, by its kind."""
    if kind == "hostPath":
        volumes.host_path(report, supplied, path)
    elif kind == "local":
        if not supplied.get("path"):
            report.required(f"{path}.path")
        else:
            details = formats.no_backsteps(supplied["path"])
            report.all_invalid(f"{path}.path", supplied["path"], details)
    elif kind == "nfs":
        volumes.nfs(report, supplied, path)
    elif kind == "csi":
        csi(report, supplied, path)
    elif kind == "iscsi":
        _iscsi(report, supplied, path)
    elif kind == "fc":
        _fibre_channel(report, supplied, path)


def csi(report: Report, supplied: JSON, path: str) -> None:
    """Check the CSI source of a PersistentVolume."""
    if supplied.get("driver"):
        driver_name(report, supplied["driver"], f"{path}.driver")
    else:
        report.required(f"{path}.driver")
    report.require(path, supplied, "volumeHandle")
    for key in _SECRETS:
        for part in ("name", "namespace") if supplied.get(key) is not None else ():
            if not supplied[key].get(part):
                report.required(f"{path}.{key}.{part}")


def driver_name(report: Report, name: str, path: str) -> None:
    """The name of a CSI driver; 63 characters at most."""
    if len(name) > 63:
        report.too_long(path, 63)
    report.all_invalid(path, name, formats.dns_subdomain(name.lower()))


def referenced_driver(report: Report, name: str, path: str) -> None:
    """The same, where the rule of the schema checks the form: an attacher, a DRA driver."""
    if len(name) > 63:
        report.too_long(path, 63)
    report.all_invalid(path, name, formats.any_case_subdomain(name))


def _iscsi(report: Report, supplied: JSON, path: str) -> None:
    report.require(path, supplied, "targetPortal")
    name = supplied.get("iqn") or ""
    if not name:
        report.required(f"{path}.iqn")
    elif not any(pattern.match(name) for pattern in (_IQN, _EUI, _NAA)):
        report.invalid(f"{path}.iqn", name, "must be valid format")
    _lun(report, supplied.get("lun") or 0, path)


def _fibre_channel(report: Report, supplied: JSON, path: str) -> None:
    targets, ids = supplied.get("targetWWNs"), supplied.get("wwids")
    if bool(targets) == bool(ids):
        detail = "must specify either targetWWNs or wwids, but not both"
        if targets:
            report.invalid(f"{path}.targetWWNs", targets, detail)
        else:
            report.required(f"{path}.targetWWNs", detail)
    elif targets:
        if supplied.get("lun") is None:
            detail = "lun is required if targetWWNs is specified"
            report.required(f"{path}.lun", detail)
        else:
            _lun(report, supplied["lun"], path)


def _lun(report: Report, number: int, path: str) -> None:
    report.all_invalid(f"{path}.lun", number, formats.in_range(number, 0, _MAX_LUN))


def changed(report: Report, new: JSON, old: JSON) -> None:
    """Source and volumeMode are immutable; node affinity may be set once."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if _sources(after) != _sources(before):
        detail = "spec.persistentvolumesource is immutable after creation"
        report.forbidden("spec.persistentvolumesource", detail)
    if after.get("volumeMode") != before.get("volumeMode"):
        report.invalid("volumeMode", after.get("volumeMode"), "field is immutable")
    known = before.get("nodeAffinity")
    if known is not None and after.get("nodeAffinity") != known:
        reported = quote(after.get("nodeAffinity"))
        detail = "field is immutable, except for updating from beta label to GA"
        report.invalid_text("nodeAffinity", reported, detail)


def _sources(spec: JSON) -> JSON:
    """The immutable part of the source: all but a driver's secret for expansion."""
    found = {kind: spec[kind] for kind in source_kinds(spec)}
    if "csi" in found:
        late = ("controllerExpandSecretRef", "nodeExpandSecretRef")
        found["csi"] = {k: v for k, v in found["csi"].items() if k not in late}
    return found

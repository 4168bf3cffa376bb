"""Defaults of claims, volumes and the kinds of storage.k8s.io. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_SNAPSHOTS = "snapshot.storage.k8s.io"
_DRIVER: JSON = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "volumeLifecycleModes": ["Persistent"],
    "requiresRepublish": False,
    "preventPodSchedulingIfMissing": False,
    "seLinuxMount": False,
}


def claim(obj: JSON) -> JSON:
    """A claim: a file system, with its data source in both fields."""
    spec = _with_sources({"volumeMode": "Filesystem", **(obj.get("spec") or {})})
    status = {"phase": "Pending", **(obj.get("status") or {})}
    return {**obj, "spec": {"resources": {}, **spec}, "status": status}


def _with_sources(spec: JSON) -> JSON:
    """A data source given in either field is set in both.

    Sources other than claims and snapshots are only references."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and not _is_source(source):
        spec = {key: value for key, value in spec.items() if key != "dataSource"}
        source = None
    if reference is None:
        reference = source
    elif source is None and not reference.get("namespace") and _is_source(reference):
        source = reference
    found = {"dataSource": source, "dataSourceRef": reference}
    return {**spec, **{key: _typed(value) for key, value in found.items() if value is not None}}


def _typed(source: JSON) -> JSON:
    return {"apiGroup": None, **source}


def _is_source(source: JSON) -> bool:
    wanted = {"": "PersistentVolumeClaim", _SNAPSHOTS: "VolumeSnapshot"}
    return wanted.get(source.get("apiGroup") or "") == source.get("kind")


def volume(obj: JSON) -> JSON:
    """A volume: a file system that is retained when its claim is deleted."""
    spec = dict(obj.get("spec") or {})
    spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    if spec.get("hostPath") is not None:
        spec["hostPath"] = {**spec["hostPath"], "type": spec["hostPath"].get("type") or ""}
    if spec.get("iscsi") is not None:
        spec["iscsi"] = {"iscsiInterface": "default", **spec["iscsi"]}
    status = {"phase": "Pending", **(obj.get("status") or {})}
    return {**obj, "spec": spec, "status": status}


def storage_class(obj: JSON) -> JSON:
    """A class: volumes are provisioned at once and deleted with their claim."""
    return {
        **obj,
        "reclaimPolicy": obj.get("reclaimPolicy") or "Delete",
        "volumeBindingMode": obj.get("volumeBindingMode") or "Immediate",
    }


def csi_driver(obj: JSON) -> JSON:
    """A driver: volumes are attached, and have the lifecycle of their objects."""
    given = {k: v for k, v in (obj.get("spec") or {}).items() if v not in (None, [], "")}
    return {**obj, "spec": {**_DRIVER, **given}}


def csi_node(obj: JSON) -> JSON:
    """A node's drivers: null if there are none."""
    drivers = [
        {**driver, "topologyKeys": driver.get("topologyKeys") or None}
        for driver in (obj.get("spec") or {}).get("drivers") or ()
    ]
    return {**obj, "spec": {"drivers": drivers or None}}


def volume_attachment(obj: JSON) -> JSON:
    """An attachment: not attached until reported."""
    return {**obj, "status": {"attached": False, **(obj.get("status") or {})}}

"""Fields of a pod whose feature gates are off: an API server drops them, unless they are in use.

Pure. A server with the gate off keeps such a field on an update of a pod that already has one.
Source: docs/reference/behaviour.md, i13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE as MEMORY_VOLUMES
from kubeletpy.pods.shape import CONTAINERS, FILE_SOURCES

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def without_disabled(pod: JSON, old: JSON | None, gates: Collection[str]) -> JSON:
    """A pod without the fields that need a gate that is off, with the defaults of one that is on.

    Args:
        pod: as its client wrote it.
        old: as it is stored; None: it is new.
        gates: those that are on.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    before = (old or {}).get("spec") or {}
    for gate, without in _FIELDS.items():
        if gate not in gates and without(before) == before:
            spec = without(spec)
    if "H2CContainerProbe" in gates:
        spec = _in_handlers(spec, _with_protocol)
    return pod if spec is pod["spec"] else {**pod, "spec": spec}


def changed(pod: JSON, old: JSON, subresource: str, gates: Collection[str]) -> JSON:
    """A pod that is written through a path, without the fields that need a gate that is off."""
    if subresource == "status":
        return _without_disabled_status(pod, old, gates)
    if subresource == "resize" and MEMORY_VOLUMES not in gates:
        pod = _with_volumes_of(pod, old)
    return without_disabled(pod, old, gates)


def _with_volumes_of(pod: JSON, old: JSON) -> JSON:
    """A resized pod whose volumes stay as they were."""
    kept = old["spec"].get("volumes")
    if pod["spec"].get("volumes") == kept:
        return pod
    spec = {key: value for key, value in pod["spec"].items() if key != "volumes"}
    return {**pod, "spec": spec if kept is None else {**spec, "volumes": kept}}


def _without_disabled_status(pod: JSON, old: JSON, gates: Collection[str]) -> JSON:
    status = pod.get("status") or {}
    kept = "CSIVolumeHealth" in gates or (old.get("status") or {}).get("volumeHealth")
    if kept or "volumeHealth" not in status:
        return pod
    return {**pod, "status": {k: v for k, v in status.items() if k != "volumeHealth"}}


def _without_bind_mount_options(spec: JSON) -> JSON:
    return {
        key: [_without(each, "volumeMounts", "bindMountOptions") for each in value]
        if key in CONTAINERS and value
        else value
        for key, value in spec.items()
    }


def _without(obj: JSON, field: str, dropped: str) -> JSON:
    """An object without one key in each entry of one of its lists."""
    if not obj.get(field):
        return obj
    entries = [{k: v for k, v in entry.items() if k != dropped} for entry in obj[field]]
    return {**obj, field: entries}


def _in_handlers(spec: JSON, change: Callable[[JSON], JSON]) -> JSON:
    """A spec with each probe and hook changed."""
    changed = dict(spec)
    for key in CONTAINERS:
        if spec.get(key):
            changed[key] = [_in_container(each, change) for each in spec[key]]
    return changed


def _in_container(container: JSON, change: Callable[[JSON], JSON]) -> JSON:
    changed = dict(container)
    for probe in _PROBES:
        if container.get(probe):
            changed[probe] = change(container[probe])
    if container.get("lifecycle"):
        changed["lifecycle"] = {
            hook: change(action) if isinstance(action, dict) else action
            for hook, action in container["lifecycle"].items()
        }
    return changed


def _without_protocol(spec: JSON) -> JSON:
    return _in_handlers(spec, lambda handler: _in_source(handler, "httpGet", "protocol"))


def _without_grpc_mode(spec: JSON) -> JSON:
    return _in_handlers(spec, lambda handler: _in_source(handler, "grpc", "mode"))


def _with_protocol(handler: JSON) -> JSON:
    action = handler.get("httpGet")
    if not action or action.get("protocol") is not None:
        return handler
    return {**handler, "httpGet": {**action, "protocol": "HTTP1"}}


def _without_responders(spec: JSON) -> JSON:
    return {key: value for key, value in spec.items() if key != "evictionResponders"}


def _without_mode(spec: JSON) -> JSON:
    return _with_volumes(spec, lambda volume: _in_source(volume, "emptyDir", "mode"))


def _without_users(spec: JSON) -> JSON:
    return _with_volumes(spec, _without_volume_users)


def _without_volume_users(volume: JSON) -> JSON:
    for kind in FILE_SOURCES:
        if volume.get(kind):
            source = _without(volume[kind], "items", "user")
            volume = _in_source({**volume, kind: source}, kind, "defaultUser")
    projected = volume.get("projected")
    if not projected or not projected.get("sources"):
        return volume
    sources = [
        {kind: _without_user(part) for kind, part in each.items()} for each in projected["sources"]
    ]
    return {**volume, "projected": {**projected, "sources": sources}}


def _without_user(part: JSON) -> JSON:
    """A source of a projected volume without owners of its files."""
    kept = {k: v for k, v in (part or {}).items() if k != "user"}
    return _without(kept, "items", "user") if part else part


def _with_volumes(spec: JSON, change: Callable[[JSON], JSON]) -> JSON:
    if not spec.get("volumes"):
        return spec
    return {**spec, "volumes": [change(volume) for volume in spec["volumes"]]}


def _in_source(volume: JSON, kind: str, dropped: str) -> JSON:
    source = volume.get(kind)
    if not source:
        return volume
    return {**volume, kind: {k: v for k, v in source.items() if k != dropped}}


_FIELDS: Mapping[str, Callable[[JSON], JSON]] = MappingProxyType(
    {
        "AtomicWriteVolumeUserFields": _without_users,
        "EmptyDirVolumeMode": _without_mode,
        "EvictionRequestAPI": _without_responders,
        "GRPCContainerProbeTLS": _without_grpc_mode,
        "H2CContainerProbe": _without_protocol,
        "VolumeBindMountOptions": _without_bind_mount_options,
    }
)
"""Gate -> a spec without its fields."""

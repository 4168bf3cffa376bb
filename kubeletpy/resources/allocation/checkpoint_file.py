"""The files of recorded resources: a snapshot in the kubelet's own format, and a journal. Pure.

The snapshot is ``{"data": JSON text, "checksum": FNV-1a of it}``, like the kubelet's state
files, so that either agent can take over the other's node. A newer kubelet adds ``"version": "v2"``
and has the pods as a protobuf PodList in the data. The journal has one JSON line per
change, ``[uid, entry or null]``: replayed in order over any snapshot that is not older than its
first line, it yields the same state. Unreadable content raises StateError or is counted.
Source: docs/reference/names.csv: checkpoint; docs/reference/state-files.csv: allocated_pods_state.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.allocation.resources import KINDS, PodResources, Requirements
from kubeletpy.resources.placement.state import StateError, reading

CONTAINERS = "ContainerResources"
POD_LEVEL = "PodLevelResources"
VOLUMES = "EmptyDirVolumeLimits"
PodListReader = Callable[[bytes], Iterable[api.Pod]]
_WITH_POD_LIST = "v2"


def snapshot(pods: Mapping[str, PodResources]) -> str:
    """Return the text of a state file with these records."""
    entries = {uid: _entry(pods[uid]) for uid in sorted(pods)}
    data = json.dumps({"entries": entries} if entries else {}, separators=(",", ":"))
    return json.dumps({"data": data, "checksum": checksum(data)}, separators=(",", ":"))


def read_snapshot(text: str, pod_list: PodListReader) -> dict[str, PodResources]:
    """Parse a state file. Raises StateError. ``pod_list`` is api_table.pod_list."""
    with reading():
        document = json.loads(text)
        version, sealed = document.get("version") or "", document["data"]
        if document["checksum"] != checksum(sealed):
            raise StateError("its checksum is not that of its data")
        data = json.loads(sealed)
        if version == _WITH_POD_LIST:
            pods = pod_list(base64.b64decode(data.get("podList") or ""))
            return {pod["metadata"]["uid"]: _recorded(pod.get("spec") or {}) for pod in pods}
        if version:
            raise StateError(f"this agent does not read version {version!r} of it")
        entries = data.get("entries") or {}
        return {uid: _read_entry(entry) for uid, entry in entries.items()}


def checksum(data: str) -> int:
    """The kubelet's checksum, taken of its debug print of the string."""
    return fnv1a_32(b"(string)" + data.encode("utf-8", "replace"))


def journal_line(uid: str, found: PodResources | None) -> bytes:
    """Return the line of one change: the pod's new record, or None for a removed one."""
    entry = None if found is None else _entry(found)
    return json.dumps([uid, entry], separators=(",", ":")).encode() + b"\n"


def replay(pods: dict[str, PodResources], lines: Iterable[bytes]) -> int:
    """Apply a journal to ``pods``; returns how many unreadable lines were skipped."""
    unread = 0
    for line in lines:
        try:
            with reading():
                uid, entry = json.loads(line)
                found = None if entry is None else _read_entry(entry)
        except StateError:
            unread += 1
            continue
        if found is None:
            pods.pop(str(uid), None)
        else:
            pods[str(uid)] = found
    return unread


def _entry(found: PodResources) -> dict[str, Any]:
    containers = {name: found.containers[name] for name in sorted(found.containers)}
    entry: dict[str, Any] = {CONTAINERS: containers, POD_LEVEL: found.pod}
    if found.volumes:
        entry[VOLUMES] = {name: found.volumes[name] for name in sorted(found.volumes)}
    return entry


def _read_entry(entry: Mapping[str, Any]) -> PodResources:
    pod = entry.get(POD_LEVEL)
    containers = entry.get(CONTAINERS) or {}
    return PodResources(
        {str(name): _requirements(value) for name, value in containers.items()},
        None if pod is None else _requirements(pod),
        {str(name): str(size) for name, size in (entry.get(VOLUMES) or {}).items() if size},
    )


def _recorded(spec: api.PodSpec) -> PodResources:
    """Resources of a pod of which the other fields may be missing."""
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    memory = {
        volume["name"]: volume["emptyDir"].get("sizeLimit")
        for volume in spec.get("volumes") or ()
        if volume.get("emptyDir", {}).get("medium") == "Memory"
    }
    return PodResources(
        {each["name"]: each.get("resources", Requirements()) for each in containers},
        spec.get("resources"),
        {name: size for name, size in memory.items() if size},
    )


def _requirements(value: Mapping[str, Any]) -> Requirements:
    for kind in KINDS:
        for amount in (value.get(kind) or {}).values():
            if not isinstance(amount, str):
                raise StateError("an amount is not a string")
    return dict(value)  # type: ignore[return-value]

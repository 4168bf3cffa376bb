"""The files of recorded resources: a snapshot in the kubelet's own format, and a journal. Pure.

The snapshot is ``{"data": JSON text, "checksum": FNV-1a of it}``, like the kubelet's state
files, so that either agent can take over the other's node. The journal has one JSON line per
change, ``[uid, entry or null]``: replayed in order over any snapshot that is not older than its
first line, it yields the same state. Unreadable content raises StateError or is counted.
Source: docs/reference/names.csv: checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.allocation.resources import KINDS, PodResources, Requirements
from kubeletpy.resources.placement.state import StateError, reading, unseal

CONTAINERS = "ContainerResources"
POD_LEVEL = "PodLevelResources"
VOLUMES = "EmptyDirVolumeLimits"


def snapshot(pods: Mapping[str, PodResources]) -> str:
    """Return the text of a state file with these records."""
    entries = {uid: _entry(pods[uid]) for uid in sorted(pods)}
    data = json.dumps({"entries": entries} if entries else {}, separators=(",", ":"))
    return json.dumps({"data": data, "checksum": checksum(data)}, separators=(",", ":"))


def read_snapshot(text: str) -> dict[str, PodResources]:
    """Parse a state file. Raises StateError."""
    with reading():
        entries = json.loads(unseal(text, checksum, "data", "checksum")).get("entries") or {}
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


def _requirements(value: Mapping[str, Any]) -> Requirements:
    for kind in KINDS:
        for amount in (value.get(kind) or {}).values():
            if not isinstance(amount, str):
                raise StateError("an amount is not a string")
    return dict(value)  # type: ignore[return-value]

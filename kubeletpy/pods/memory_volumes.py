"""Size limits of a pod's volumes in memory, which a resize may change besides cpu and memory.

Pure; must never change an object in place. Source: docs/reference/behaviour.md, c10; KEP-6030.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api.quantity import parse
from kubeletpy.pods.pod import Pod

GATE = "InPlacePodVerticalScalingMemoryBackedVolumes"


class VolumeSizeError(Exception):
    """The size of a volume could not be changed; the message states why."""


def size_limits(pod: Pod) -> dict[str, str]:
    """The ``sizeLimit`` of each emptyDir in memory that has one, by the volume's name."""
    found = {}
    for volume in pod.spec.get("volumes") or ():
        source: Mapping[str, Any] = volume.get("emptyDir") or {}
        limit = source.get("sizeLimit")
        if source.get("medium") == "Memory" and limit and not same_size(limit, "0"):
            found[volume["name"]] = limit
    return found


def same_size(one: str, other: str) -> bool:
    """Whether two quantities are the same amount; one that can't be read equals only its text."""
    if one == other:
        return True
    try:
        return parse(one) == parse(other)
    except ValueError:
        return False


def changed_limits(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The limits in ``after`` that differ from those in ``before``; volumes of both only."""
    return {
        name: limit
        for name, limit in after.items()
        if name in before and not same_size(before[name], limit)
    }


def with_size_limits(pod: Pod, given: Mapping[str, str]) -> list[Any] | None:
    """The pod's volumes with these size limits, by name; None: they have them already."""
    changed = changed_limits(size_limits(pod), given) if given else {}
    if not changed:
        return None
    volumes: list[Any] = pod.spec.get("volumes") or []
    return [
        {**volume, "emptyDir": {**volume["emptyDir"], "sizeLimit": changed[volume["name"]]}}
        if volume["name"] in changed
        else volume
        for volume in volumes
    ]

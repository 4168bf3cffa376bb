"""Which eviction thresholds a pod's requests would bring near. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.observe.foresee.model import Squeezed

_RESOURCES = {
    "memory.available": "memory",
    "allocatableMemory.available": "memory",
    "nodefs.available": "ephemeral-storage",
}


def squeezed(levels: Sequence[Mapping[str, Any]], needs: Mapping[str, int]) -> tuple[Squeezed, ...]:
    """Thresholds of what a pod requests, with what is available now.

    Args:
        levels: as in the node's report of pressure (:class:`kubeletpy.node.eviction.report.Level`).
        needs: what the pod requests, in bytes.
    """
    found = []
    for level in levels:
        requested = needs.get(_RESOURCES.get(level["signal"], ""), 0)
        if requested:
            available, threshold = level["available"], level["threshold"]
            left = available - requested
            found.append(
                Squeezed(level["signal"], available, requested, threshold, left, left < threshold)
            )
    return tuple(found)

"""Memory protection for containers, and the threshold above which the kernel throttles them.

Pure. Feature gate MemoryQoS, on cgroup v2 only. Source: docs/reference/behaviour-resources.md, rj:
MemoryQoS; docs/reference/constants.csv: resources: memory.high (MemoryQoS).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.pods.qos import QoSClass
from kubeletpy.structs import Struct

PAGE = 4096


class MemoryQoS(Struct, frozen=True):
    """The configuration; absent if the gate is off or this is not cgroup v2."""

    tiered: bool = False
    """memoryReservationPolicy TieredReservation: what pods request is reserved for them."""
    throttling_factor: float = 0.9
    allocatable: int = 0
    """Bytes that pods may use on this node: the limit of a container without its own."""


class Protection(Struct, frozen=True):
    """Bytes that are never reclaimed (min), and that are reclaimed last (low). None: not set."""

    minimum: int | None = None
    low: int | None = None


def of_request(qos: MemoryQoS | None, quality: QoSClass, request: int) -> Protection:
    """The protection of a pod of that class that requests so many bytes."""
    if qos is None or not qos.tiered or request <= 0:
        return Protection()
    if quality is QoSClass.GUARANTEED:
        return Protection(minimum=request)
    return Protection(low=request)


def container_files(
    qos: MemoryQoS | None, quality: QoSClass, request: int, limit: int
) -> Mapping[str, str]:
    """Files of a container's cgroup and their contents; ``request``, ``limit`` in bytes, 0: none.

    With policy None the protections are written as 0, which clears earlier values.
    """
    if qos is None:
        return {}
    files: dict[str, str] = {}
    protection = of_request(qos, quality, request)
    if protection == Protection():
        protection = Protection(0, 0)
    if protection.minimum is not None:
        files["memory.min"] = str(protection.minimum)
    if protection.low is not None:
        files["memory.low"] = str(protection.low)
    if high := throttled_from(qos, request, limit):
        files["memory.high"] = str(high)
    return files


def throttled_from(qos: MemoryQoS, request: int, limit: int) -> int:
    """memory.high of a container; 0: none, as its request equals its limit or leaves no room."""
    most = limit or qos.allocatable
    if request == limit:
        return 0
    high = int((request + (most - request) * qos.throttling_factor) // PAGE) * PAGE
    return high if high > request else 0

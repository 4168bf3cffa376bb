"""Memory protection of pods and containers, and the use above which the kernel throttles them.

Pure. Feature gate MemoryQoS, on cgroup v2 only. Source: docs/reference/behaviour-resources.md, rj:
MemoryQoS; docs/reference/constants.csv: resources: memory.high (MemoryQoS).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.pods.qos import QoSClass

PAGE = 4096
SAFE_KERNEL = (5, 9)
"""The first kernel whose throttling at memory.high cannot livelock."""


class MemoryQoS(Struct, frozen=True):
    """The configuration; absent if the gate is off or this is not cgroup v2."""

    tiered: bool = False
    """memoryReservationPolicy TieredReservation: what pods request is reserved for them."""
    throttling_factor: float | None = 0.9
    """Share of the bytes between request and limit; None: nothing is throttled."""
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
    qos: MemoryQoS | None,
    quality: QoSClass,
    request: int,
    limit: int,
    *,
    pod_limit: int = 0,
) -> Mapping[str, str]:
    """Files of a container's cgroup and their contents, on cgroup v2.

    With policy None the protections are written as 0, which clears earlier values. Without the
    gate memory.high is written as "max" for the same reason.

    Args:
        request: of the container, in bytes; 0: none.
        limit: of the container, in bytes; 0: none.
        pod_limit: pod-level limit in bytes. The pod's own memory.high throttles a container that
            has no limit then.
    """
    if qos is None:
        return {"memory.high": "max"}
    files: dict[str, str] = {}
    protection = of_request(qos, quality, request)
    if protection == Protection():
        protection = Protection(0, 0)
    if protection.minimum is not None:
        files["memory.min"] = str(protection.minimum)
    if protection.low is not None:
        files["memory.low"] = str(protection.low)
    if limit or not pod_limit:
        high = throttled_from(qos, request, limit or qos.allocatable)
        if high:
            files["memory.high"] = str(high)
    return files


def throttled_from(qos: MemoryQoS | None, request: int, limit: int) -> int:
    """memory.high of a container or pod, in whole pages; 0: none.

    There is none without a factor or limit, and where it would be no more than the request.
    """
    if qos is None or qos.throttling_factor is None or not limit or limit == request:
        return 0
    high = int((request + (limit - request) * qos.throttling_factor) // PAGE) * PAGE
    return high if high > request else 0


def livelock_risk(qos: MemoryQoS | None, kernel_version: str) -> bool:
    """Whether processes may hang at memory.high: kernels before 5.9 (``5.4.0-1-amd64``)."""
    found = re.match(r"(\d+)\.(\d+)", kernel_version)
    if qos is None or qos.throttling_factor is None or found is None:
        return False
    return (int(found[1]), int(found[2])) < SAFE_KERNEL

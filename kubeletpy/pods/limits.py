"""Pod-level cpu and memory limits, as set in the pod's cgroup."""

from __future__ import annotations

from kubeletpy.base.structs import Struct

UNLIMITED = -1


class PodLimitsError(Exception):
    """A pod's limits could not be read or written; the message states which and why."""


class PodLimits(Struct, frozen=True):
    """Pod-level cpu and memory limits. None: not set, or to be left unchanged."""

    shares: int | None = None
    """In the units of cgroup v1, also on v2."""
    quota_us: int | None = None
    """Microseconds of cpu in each period; UNLIMITED: no limit."""
    period_us: int | None = None
    memory: int | None = None
    """Bytes; UNLIMITED: no limit."""

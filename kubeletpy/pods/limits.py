"""The cpu and memory limits of a pod as a whole, as its cgroup has them."""

from __future__ import annotations

from dataclasses import dataclass

UNLIMITED = -1


class PodLimitsError(Exception):
    """Limits of a pod could not be read or written; the message says which and why."""


@dataclass(frozen=True, slots=True)
class PodLimits:
    """cpu and memory limits of a pod as a whole. None: not set, or to be left as it is."""

    shares: int | None = None
    """In the units of cgroup v1, also on v2."""
    quota_us: int | None = None
    """Microseconds of cpu in each period; UNLIMITED: no limit."""
    period_us: int | None = None
    memory: int | None = None
    """Bytes; UNLIMITED: no limit."""

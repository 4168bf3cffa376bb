"""The systemd unit properties that hold a cgroup's limits.

Pure. Source: org.freedesktop.systemd1(5), systemd.resource-control(5); docs/reference/names.csv:
cgroup.
"""

from __future__ import annotations

from kubeletpy.pods.resources import shares_to_weight
from kubeletpy.resources.cgroups.values import DEFAULT_PERIOD_US, CgroupResources, rounded_quota

Properties = dict[str, tuple[str, object]]
"""Property name -> D-Bus signature and value."""

INFINITY = (1 << 64) - 1
"""systemd's "no limit" in every unsigned 64-bit property."""
_UNITS = (".slice", ".service", ".scope")


def unit_name(path: str) -> str | None:
    """The unit that owns a cgroup path; None when systemd has no unit of that name.

    >>> unit_name("/kubepods.slice/kubepods-burstable.slice")
    'kubepods-burstable.slice'
    """
    name = path.rpartition("/")[2]
    return name if name.endswith(_UNITS) else None


def new_slice(version: int) -> Properties:
    """Properties of a slice that is created, besides its limits: every controller is enabled."""
    block = "IOAccounting" if version == 2 else "BlockIOAccounting"
    accounting = ("CPUAccounting", "MemoryAccounting", "TasksAccounting", block)
    return {
        "Description": ("s", "Kubernetes pods"),
        "DefaultDependencies": ("b", False),
        **dict.fromkeys(accounting, ("b", True)),
    }


def limit_properties(version: int, resources: CgroupResources) -> Properties:
    """Properties of the limits that are given. systemd has none for huge pages."""
    found: Properties = {}
    if resources.shares is not None:
        if version == 2:
            found["CPUWeight"] = ("t", shares_to_weight(resources.shares))
        else:
            found["CPUShares"] = ("t", resources.shares)
    if resources.period_us:
        found["CPUQuotaPeriodUSec"] = ("t", resources.period_us)
    if resources.quota_us:
        found["CPUQuotaPerSecUSec"] = ("t", _per_second(resources.quota_us, resources.period_us))
    if resources.memory:
        found["MemoryMax" if version == 2 else "MemoryLimit"] = ("t", _limit(resources.memory))
    if version == 2:
        if resources.memory_min is not None:
            found["MemoryMin"] = ("t", resources.memory_min)
        if resources.memory_low is not None:
            found["MemoryLow"] = ("t", resources.memory_low)
        if resources.memory_high:
            found["MemoryHigh"] = ("t", _limit(resources.memory_high))
    if resources.pids:
        found["TasksMax"] = ("t", _limit(resources.pids))
    return found


def _per_second(quota_us: int, period_us: int | None) -> int:
    period = period_us or DEFAULT_PERIOD_US
    return INFINITY if quota_us < 0 else rounded_quota(quota_us, period) * 1_000_000 // period


def _limit(number: int) -> int:
    return INFINITY if number < 0 else number

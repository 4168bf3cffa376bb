"""Requests and limits in cgroup units, which the CRI uses too.

Source: docs/reference/constants.csv: cpu shares, cpu quota.
"""

from __future__ import annotations

from kubeletpy.api.quantity import whole
from kubeletpy.pods.resources import HUGEPAGES_PREFIX, Amounts, amounts

MIN_SHARES = 2
MAX_SHARES = 262_144
MIN_QUOTA_US = 1_000
_PAGE_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def cpu_shares(millicores: int) -> int:
    """cgroup v1 shares for a cpu request; the runtime turns them into a v2 weight."""
    return max(MIN_SHARES, min(MAX_SHARES, millicores * 1024 // 1000))


def cpu_quota(millicores: int, period_us: int) -> int:
    """Microseconds of cpu per period; 0 for no limit."""
    if millicores <= 0:
        return 0
    return max(MIN_QUOTA_US, min(millicores * period_us // 1000, 2**63 - 1))


def hugepage_limits(limits: Amounts) -> dict[str, int]:
    """Bytes by page size, named as in cgroups (``2MB``). Raises ValueError."""
    found = {}
    for name, amount in limits.items():
        if name.startswith(HUGEPAGES_PREFIX):
            size = whole(amounts({"": name.removeprefix(HUGEPAGES_PREFIX)})[""])
            found[page_size_name(size)] = whole(amount)
    return found


def page_size_name(size: int) -> str:
    """A page size in bytes as cgroups name it: ``2MB``."""
    for unit, suffix in _PAGE_UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit}{suffix}"
    return f"{size}B"

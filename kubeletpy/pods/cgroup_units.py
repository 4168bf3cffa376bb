"""Requests and limits in cgroup units, which the CRI uses too.

Source: docs/reference/constants.csv: cpu shares, cpu quota, weight to shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kubeletpy.base.api.quantity import whole
from kubeletpy.pods.resources import HUGEPAGES_PREFIX, Amounts, amounts

MIN_SHARES = 2
MAX_SHARES = 262_144
MIN_QUOTA_US = 1_000
_MAX_WEIGHT = 10_000
_SPAN_SHARES, _SPAN_WEIGHT = MAX_SHARES - MIN_SHARES, _MAX_WEIGHT - 1
_PAGE_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def cpu_shares(millicores: int) -> int:
    """cgroup v1 shares for a cpu request; the runtime turns them into a v2 weight."""
    return max(MIN_SHARES, min(MAX_SHARES, millicores * 1024 // 1000))


def shares_to_weight(shares: int) -> int:
    """The cgroup v2 cpu.weight that the kubelet, and runtimes until 2025, write for shares."""
    known = max(MIN_SHARES, min(MAX_SHARES, shares))
    return 1 + (known - MIN_SHARES) * _SPAN_WEIGHT // _SPAN_SHARES


def weight_to_shares(weight: int) -> int:
    """The inverse of :func:`shares_to_weight`, as near as integers allow."""
    return (weight - 1) * _SPAN_SHARES // _SPAN_WEIGHT + MIN_SHARES


def shares_to_default_weight(shares: int) -> int:
    """The cpu.weight that runc 1.3.2, crun 1.23 and later write for shares.

    The default of cgroup v1, 1024, is that of v2, 100 (opencontainers/runc#4896).
    """
    if shares <= MIN_SHARES:
        return 1
    if shares >= MAX_SHARES:
        return _MAX_WEIGHT
    log = math.log2(shares)
    return math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34))


def default_weight_to_shares(weight: int) -> int:
    """The inverse of :func:`shares_to_default_weight`, as near as integers allow."""
    known = max(1, min(_MAX_WEIGHT, weight))
    log = (math.sqrt(125**2 + 4 * 612 * (math.log10(known) + 7 / 34)) - 125) / 2
    return round(2**log)


def shares_of_container(weight: int, requested: Iterable[int]) -> int:
    """The shares for which a runtime wrote a container's cpu.weight.

    A weight does not show which of the two conversions its runtime used. Where the shares that
    the container requests make it by either, they are returned; else the nearer inverse.

    Args:
        requested: the shares that the container may have, most likely first.
    """
    candidates = tuple(requested)
    for shares in candidates:
        if weight in {shares_to_weight(shares), shares_to_default_weight(shares)}:
            return shares
    found = default_weight_to_shares(weight)
    if not candidates:
        return found
    return min(
        (found, max(weight_to_shares(weight), MIN_SHARES)),
        key=lambda each: abs(math.log(each / max(candidates[0], MIN_SHARES))),
    )


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

"""Reads a pod's cpu and memory limits from the files of its cgroup.

Pure: the read function is passed in. Source: docs/reference/behaviour.md, c10.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from kubeletpy.base.structs import replace
from kubeletpy.base.text import number
from kubeletpy.pods.resources import shares_to_weight, weight_to_shares
from kubeletpy.resources.cgroups.values import NO_LIMIT, CgroupResources, rounded_quota

PAGE = 4096
_V1_UNLIMITED = 1 << 62
"""cgroup v1 shows "no limit" as the largest number of whole pages."""


def read_limits(version: int, read: Callable[[str, str], str]) -> CgroupResources | None:
    """Shares, quota, period and memory; None: a file is missing or malformed.

    ``read(controller, file)`` gives a file's text, empty when it can't be read.
    """
    try:
        return _v1(read) if version == 1 else _v2(read)
    except ValueError:
        return None


def memory_usage(version: int, read: Callable[[str, str], str]) -> int | None:
    """Bytes in use, page cache included; None: it can't be read."""
    name = "memory.usage_in_bytes" if version == 1 else "memory.current"
    return number(read("memory", name))


def as_requested(version: int, found: CgroupResources, wanted: CgroupResources) -> CgroupResources:
    """The limits found, as the values requested where the kernel merely rounded them.

    It keeps memory in whole pages, and cgroup v2 has fewer weights than v1 has shares; systemd
    keeps a whole percentage of a CPU.
    """
    shares, memory = found.shares, found.memory
    if version == 2 and wanted.shares is not None:
        rounded = weight_to_shares(shares_to_weight(wanted.shares))
        shares = wanted.shares if shares == rounded else shares
    if memory is not None and wanted.memory and memory == wanted.memory // PAGE * PAGE:
        memory = wanted.memory
    quota = found.quota_us
    period = wanted.period_us
    if wanted.quota_us and period and period == found.period_us:
        quota = wanted.quota_us if quota == rounded_quota(wanted.quota_us, period) else quota
    return replace(found, shares=shares, memory=memory, quota_us=quota)


def with_more(known: CgroupResources | None, more: CgroupResources) -> CgroupResources:
    """Limits overlaid with others."""
    if known is None:
        return more
    given = {name: it for name, it in structs.asdict(more).items() if it not in (None, {})}
    return replace(known, **given)


def _v1(read: Callable[[str, str], str]) -> CgroupResources:
    memory = int(read("memory", "memory.limit_in_bytes"))
    return CgroupResources(
        shares=int(read("cpu", "cpu.shares")),
        quota_us=int(read("cpu", "cpu.cfs_quota_us")),
        period_us=int(read("cpu", "cpu.cfs_period_us")),
        memory=NO_LIMIT if memory >= _V1_UNLIMITED else memory,
    )


def _v2(read: Callable[[str, str], str]) -> CgroupResources:
    quota, period = read("cpu", "cpu.max").split()
    return CgroupResources(
        shares=weight_to_shares(int(read("cpu", "cpu.weight"))),
        quota_us=_or_unlimited(quota),
        period_us=int(period),
        memory=_or_unlimited(read("memory", "memory.max")),
    )


def _or_unlimited(text: str) -> int:
    return NO_LIMIT if text == "max" else int(text)

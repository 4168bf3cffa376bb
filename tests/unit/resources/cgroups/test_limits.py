"""Limits of a pod's cgroup, read and changed while the pod runs."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod, PodLimits, PodLimitsError
from kubeletpy.resources.cgroups.filesystem import (
    PAGE,
    as_requested,
    memory_usage,
    read_limits,
    with_more,
)
from kubeletpy.resources.cgroups.pod_cgroups import KernelPodLimits
from kubeletpy.resources.cgroups.values import CgroupResources
from tests.unit.resources.cgroups.pods import container, fixed, pod
from tests.unit.resources.cgroups.test_pod_cgroups import Node, node, shares, weight

__all__ = ["node"]

MI = 1 << 20
MAX_V1 = "9223372036854771712"


def reader(files: dict[str, str]) -> Any:
    return lambda controller, name: files.get(name, "")


V1 = {
    "cpu.shares": "512",
    "cpu.cfs_quota_us": "-1",
    "cpu.cfs_period_us": "100000",
    "memory.limit_in_bytes": MAX_V1,
    "memory.usage_in_bytes": "4096",
}
V2 = {
    "cpu.weight": "20",
    "cpu.max": "max 100000",
    "memory.max": "max",
    "memory.current": "4096",
}
NONE = CgroupResources(shares=512, quota_us=-1, period_us=100_000, memory=-1)


@pytest.mark.parametrize(
    ("version", "files", "expected"),
    [
        (1, V1, NONE),
        (1, {**V1, "memory.limit_in_bytes": "8192"}, CgroupResources(512, -1, 100_000, 8192)),
        (1, {**V1, "memory.limit_in_bytes": str(1 << 62)}, NONE),
        (
            1,
            {**V1, "memory.limit_in_bytes": str((1 << 62) - PAGE)},
            CgroupResources(512, -1, 100_000, (1 << 62) - PAGE),
        ),
        (1, {**V1, "cpu.cfs_quota_us": "5000"}, CgroupResources(512, 5000, 100_000, -1)),
        (2, V2, CgroupResources(500, -1, 100_000, -1)),
        (
            2,
            {**V2, "cpu.max": "5000 20000", "memory.max": "0"},
            CgroupResources(500, 5000, 20_000, 0),
        ),
        (1, {**V1, "cpu.shares": ""}, None),
        (1, {**V1, "memory.limit_in_bytes": "lots"}, None),
        (2, {**V2, "cpu.max": "max"}, None),
        (2, {}, None),
    ],
)
def test_files_are_read(
    version: int, files: dict[str, str], expected: CgroupResources | None
) -> None:
    assert read_limits(version, reader(files)) == expected


def test_memory_in_use_is_read() -> None:
    assert memory_usage(1, reader(V1)) == memory_usage(2, reader(V2)) == 4096
    assert memory_usage(1, reader({})) is None
    assert memory_usage(2, reader({"memory.current": "-1"})) is None


def test_limits_rounded_by_the_kernel_equal_the_requested_ones() -> None:
    desired = CgroupResources(shares=512, memory=100_000_000)
    found = CgroupResources(shares=500, quota_us=-1, memory=99_999_744)
    as_wanted = CgroupResources(shares=512, quota_us=-1, memory=100_000_000)
    assert as_requested(2, found, desired) == as_wanted
    other = CgroupResources(shares=700, memory=99_999_744 - 4096)
    assert as_requested(2, other, desired) == other
    assert as_requested(2, found, CgroupResources()) == found


def test_shares_of_v1_are_not_rounded() -> None:
    """2 and 20 are the same weight on v2, but 20 is ten times as much CPU on v1."""
    desired, found = CgroupResources(shares=20), CgroupResources(shares=2)
    assert as_requested(1, found, desired) == found
    assert as_requested(2, found, desired) == desired


def test_merged_limits() -> None:
    known = CgroupResources(shares=2, memory=5, hugepages={"2MB": 0})
    assert with_more(None, known) == known
    assert with_more(known, CgroupResources(memory=7)) == CgroupResources(
        shares=2, memory=7, hugepages={"2MB": 0}
    )


async def made(node: Node, first: Pod) -> KernelPodLimits:
    await node.add(first)
    return KernelPodLimits(node.tree, node.cgroups)


async def test_written_limits_are_read_back(node: Node) -> None:
    guaranteed = pod(fixed("250m", "100M"), uid="a")
    limits = await made(node, guaranteed)
    desired = limits.requested(guaranteed)
    assert desired == PodLimits(shares=256, quota_us=25_000, period_us=100_000, memory=100_000_000)
    assert limits.current(guaranteed) == desired


async def test_only_given_limits_are_written(node: Node) -> None:
    small = pod(fixed("250m", "64Mi"), uid="a")
    limits = await made(node, small)
    await limits.write(small, PodLimits(memory=128 * MI))
    assert limits.current(small) == PodLimits(256, 25_000, 100_000, 128 * MI)
    await limits.write(small, PodLimits(quota_us=-1, period_us=100_000))
    await limits.write(small, PodLimits(shares=2))
    assert limits.current(small) == PodLimits(2, -1, 100_000, 128 * MI)


async def test_the_burstable_group_follows_a_resize(node: Node) -> None:
    limits = await made(node, pod(container("500m"), uid="a"))
    assert shares(node) == weight(node, "512", "20")
    bigger = pod(container("1"), uid="a")
    node.pods[:] = [bigger]
    await limits.write(bigger, PodLimits(shares=1024))
    assert shares(node) == weight(node, "1024", "39")
    node.cgroups._refresh()
    smaller = pod(container("500m"), uid="a")
    await limits.write(smaller, PodLimits(shares=512))
    assert shares(node) == weight(node, "512", "20")


async def test_errors_name_the_cgroup(node: Node) -> None:
    there = pod(container("500m"), uid="a")
    limits = await made(node, there)
    removed = pod(container("500m"), uid="b")
    with pytest.raises(PodLimitsError, match="podb"):
        limits.current(removed)
    with pytest.raises(PodLimitsError, match="podb"):
        await limits.write(removed, PodLimits(shares=5))
    with pytest.raises(PodLimitsError, match="podb"):
        await limits.write(removed, PodLimits(memory=5))
    with pytest.raises(PodLimitsError, match="missing pod memory usage"):
        limits.memory_usage(there)
    with pytest.raises(PodLimitsError, match="nonsense"):
        limits.requested(pod(container("nonsense"), uid="c"))
    with pytest.raises(PodLimitsError, match="uid"):
        limits.current(pod(container("1"), uid="../x"))


async def test_usage(node: Node) -> None:
    there = pod(container("500m"), uid="a")
    limits = await made(node, there)
    path = node.files.root / ("memory" if node.files.version == 1 else "")
    name = "memory.usage_in_bytes" if node.files.version == 1 else "memory.current"
    (path / "kubepods/burstable/poda" / name).write_text("12345\n")
    assert limits.memory_usage(there) == 12345

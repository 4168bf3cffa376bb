"""Creating, limiting and removing cgroups on directories that imitate v1 and v2."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod, PodLimits, PodLimitsError
from kubeletpy.resources.cgroups.filesystem import (
    PAGE,
    ProcessGroups,
    as_requested,
    detect,
    memory_usage,
    read_limits,
    with_more,
)
from kubeletpy.resources.cgroups.pod_cgroups import KernelPodLimits
from kubeletpy.resources.cgroups.values import (
    CgroupBusy,
    CgroupError,
    CgroupResources,
    CgroupsUnavailable,
)
from tests.kit.cgroups import LookAlike, container, fixed, pod, text, v1_machine, v2_machine
from tests.unit.resources.cgroups.test_pod_cgroups import Node, node, shares, weight

POD = "/kubepods/burstable/pod1"
LIMITS = CgroupResources(shares=512, quota_us=50_000, period_us=100_000, memory=4096, pids=9)


@pytest.fixture
def v1(tmp_path: Path) -> LookAlike:
    return LookAlike.at(v1_machine(tmp_path / "fs"))


@pytest.fixture
def v2(tmp_path: Path) -> LookAlike:
    return LookAlike.at(v2_machine(tmp_path / "fs"))


def test_the_version_is_detected(tmp_path: Path) -> None:
    first = detect(v1_machine(tmp_path / "1"))
    assert first.version == 1
    assert {"cpu", "cpuacct", "memory", "pids", "hugetlb"} <= set(first.hierarchies)
    second = detect(v2_machine(tmp_path / "2"))
    assert second.version == 2
    assert "cpuset" in second.hierarchies


def test_an_error_about_missing_cgroups_names_the_remedy(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "none", v2_machine(tmp_path / "2", "cpuset pids")):
        with pytest.raises(CgroupsUnavailable, match="cgroupsPerQOS"):
            detect(root)


def test_v1_is_written_in_the_hierarchies_it_belongs_to(v1: LookAlike) -> None:
    assert not v1.exists(POD)
    v1.create(POD, LIMITS)
    assert v1.exists(POD)
    cpu = v1.root / "cpu" / POD[1:]
    assert text(cpu / "cpu.shares") == "512"
    assert text(cpu / "cpu.cfs_period_us") == "100000"
    assert text(cpu / "cpu.cfs_quota_us") == "50000"
    assert text(v1.root / "memory" / POD[1:] / "memory.limit_in_bytes") == "4096"
    assert text(v1.root / "pids" / POD[1:] / "pids.max") == "9"
    assert not (v1.root / "freezer" / "kubepods").exists()


def test_v2_hands_controllers_down_to_every_group_above(v2: LookAlike) -> None:
    v2.create("/kubepods", CgroupResources(), group=True)
    v2.create(POD, LIMITS)
    pod = v2.root / POD[1:]
    assert text(pod / "cpu.weight") == "20"
    assert text(pod / "cpu.max") == "50000 100000"
    assert text(pod / "memory.max") == "4096"
    for above in (v2.root, v2.root / "kubepods", v2.root / "kubepods" / "burstable"):
        assert text(above / "cgroup.subtree_control") == "+pids"
    assert text(pod / "cgroup.subtree_control") == ""


def test_all_users_can_search_a_cgroup_whatever_the_umask(v2: LookAlike) -> None:
    before = os.umask(0o027)
    try:
        v2.create(POD, LIMITS)
    finally:
        os.umask(before)
    pod = v2.root / POD[1:]
    groups = (pod, pod.parent, pod.parent.parent)
    assert {stat.S_IMODE(each.stat().st_mode) for each in groups} == {0o755}
    # those of an agent that did not set it
    pod.chmod(0o750)
    v2.create(POD, LIMITS)
    for directory in groups:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_a_cgroup_missing_in_one_hierarchy_does_not_exist(v1: LookAlike) -> None:
    v1.create(POD, LIMITS)
    v1._rmdir(str(v1.root / "memory" / POD[1:]))
    assert not v1.exists(POD)
    v1.create(POD, LIMITS)
    assert v1.exists(POD)


def test_unsupported_limits_are_left_out(tmp_path: Path) -> None:
    bare = LookAlike.at(v2_machine(tmp_path / "fs", "cpu memory"))
    pages = CgroupResources(memory=4096, pids=9, hugepages={"2MB": 0})
    bare.create("/a/b", pages)
    assert text(bare.root / "a" / "b" / "memory.max") == "4096"
    assert text(bare.root / "a" / "b" / "pids.max") == ""
    (bare.root / "a" / "b" / "memory.max").unlink()
    bare.write("/a/b", pages)


def test_writing_to_an_absent_cgroup_is_an_error(v1: LookAlike) -> None:
    with pytest.raises(CgroupError, match="/none is not there"):
        v1.write("/none", LIMITS)


@pytest.mark.parametrize("path", ["", "/", "a", "/a/../b", "/..", "/a//b", "/a/./b", "/a\0b"])
def test_paths_cannot_leave_the_hierarchy(v1: LookAlike, path: str) -> None:
    for refuse in (v1.exists, v1.remove, v1.remove_tree, v1.children):
        with pytest.raises(CgroupError, match="path of a cgroup"):
            refuse(path)
    with pytest.raises(CgroupError):
        v1.create(path, LIMITS)


def test_cgroups_of_the_runtime_are_removed_too(v1: LookAlike) -> None:
    v1.create(POD, LIMITS)
    for mount in ("freezer", "systemd", "memory"):
        (v1.root / mount / POD[1:] / "abc" / "deeper").mkdir(parents=True)
    assert v1.children("/kubepods/burstable") == {"pod1"}
    assert not v1.remove(POD)
    v1.remove_tree(POD)
    assert v1.children("/kubepods/burstable") == set()
    assert v1.remove(POD)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_processes_left_behind_are_killed(v1: LookAlike, sleeper: subprocess.Popen[bytes]) -> None:
    v1.create(POD, LIMITS)
    procs = v1.root / "pids" / POD[1:] / "cgroup.procs"
    procs.write_text(f"{sleeper.pid}\n")
    with pytest.raises(CgroupBusy):
        v1.remove_tree(POD)
    assert sleeper.wait(10) == -9
    procs.write_text("")
    v1.remove_tree(POD)
    assert not v1.exists(POD)


def test_v2_is_killed_by_the_kernel(v2: LookAlike) -> None:
    v2.create(POD, LIMITS)
    kill = v2.root / POD[1:] / "cgroup.kill"
    (v2.root / POD[1:] / "cgroup.procs").write_text("1\n")
    with pytest.raises(CgroupBusy):
        v2.remove_tree(POD)
    assert text(kill) == "1"


def test_a_link_is_not_followed(v2: LookAlike, tmp_path: Path) -> None:
    v2.create(POD, LIMITS)
    outside = tmp_path / "outside"
    outside.write_text("kept")
    (v2.root / POD[1:] / "memory.max").unlink()
    (v2.root / POD[1:] / "memory.max").symlink_to(outside)
    with pytest.raises(CgroupError):
        v2.write(POD, LIMITS)
    assert outside.read_text() == "kept"


# Limits of a pod's cgroup, read and changed while the pod runs.

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
V2 = {"cpu.weight": "20", "cpu.max": "max 100000", "memory.max": "max", "memory.current": "4096"}
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


# Moving processes into cgroups, on both versions.


def test_v1_moves_a_process_in_every_hierarchy_with_controllers(tmp_path: Path) -> None:
    v1_machine(tmp_path)
    groups = ProcessGroups(LookAlike.at(tmp_path))
    groups.create("/daemons/agent")
    groups.move_process(4711, "/daemons/agent")
    for mount in ("cpu,cpuacct", "memory", "pids"):
        assert text(tmp_path / mount / "daemons/agent/cgroup.procs") == "4711"
    for mount in ("freezer", "systemd", "unified"):
        assert not (tmp_path / mount / "daemons").exists()


def test_v1_processes_outside_any_cgroup(tmp_path: Path) -> None:
    v1_machine(tmp_path)
    for mount, pids in (
        ("cpu,cpuacct", "1\n7\n8\nx\n"),
        ("memory", "1\n7\n"),
        ("pids", "7\n8\n1\n"),
    ):
        (tmp_path / mount / "cgroup.procs").write_text(pids)
    assert ProcessGroups(LookAlike.at(tmp_path)).in_none() == {1, 7}


def test_v2_processes_are_moved(tmp_path: Path) -> None:
    v2_machine(tmp_path / "m")
    (tmp_path / "m" / "cgroup.procs").write_text("1\n7\n")
    groups = ProcessGroups(LookAlike.at(tmp_path / "m"))
    assert groups.in_none() == {1, 7}
    groups.create("/agent.slice")
    groups.move_process(7, "/agent.slice")
    assert text(tmp_path / "m" / "agent.slice/cgroup.procs") == "7"


def test_a_process_that_is_already_there_is_not_moved(tmp_path: Path) -> None:
    v2_machine(tmp_path / "m")
    groups = ProcessGroups(LookAlike.at(tmp_path / "m"))
    groups.create("/a")
    (tmp_path / "m" / "a" / "cgroup.procs").write_text("6\n7\n")
    groups.move_process(7, "/a")
    assert text(tmp_path / "m" / "a" / "cgroup.procs") == "6\n7"


@pytest.mark.parametrize("path", ["", "a", "/..", "/a/../b", "//a", "/a\0"])
def test_processes_paths_cannot_leave_the_hierarchy(tmp_path: Path, path: str) -> None:
    v2_machine(tmp_path / "m")
    groups = ProcessGroups(LookAlike.at(tmp_path / "m"))
    with pytest.raises(CgroupError):
        groups.create(path)
    with pytest.raises(CgroupError):
        groups.move_process(7, path)


@pytest.mark.parametrize(("number", "raises"), [(errno.ESRCH, False), (errno.EBUSY, True)])
def test_errors_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raises: bool
) -> None:
    v2_machine(tmp_path / "m")
    groups = ProcessGroups(LookAlike.at(tmp_path / "m"))
    groups.create("/a")

    def refuse(path: Path, data: str) -> int:
        raise OSError(number, "refused")

    monkeypatch.setattr(Path, "write_text", refuse)
    if not raises:
        groups.move_process(7, "/a")
        return
    with pytest.raises(CgroupError, match=r"process 7 .* into cgroup /a of .*: refused"):
        groups.move_process(7, "/a")

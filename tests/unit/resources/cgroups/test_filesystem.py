"""Creating, limiting and removing cgroups on directories that imitate v1 and v2."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.resources.cgroups.filesystem import detect
from kubeletpy.resources.cgroups.values import (
    CgroupBusy,
    CgroupError,
    CgroupResources,
    CgroupsUnavailable,
)
from tests.unit.resources.cgroups.look_alike import LookAlike, text, v1_machine, v2_machine

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

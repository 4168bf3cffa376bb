"""Moving processes into cgroups, on both versions."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kubeletpy.resources.cgroups.filesystem import ProcessGroups
from kubeletpy.resources.cgroups.values import CgroupError
from tests.unit.resources.cgroups.look_alike import LookAlike, text, v1_machine, v2_machine


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
def test_paths_cannot_leave_the_hierarchy(tmp_path: Path, path: str) -> None:
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

"""Which processes are moved into the cgroups of daemons, and the errors when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from kubeletpy.node.guards.at_start import DaemonCgroups
from kubeletpy.resources.cgroups.filesystem import ProcessGroups
from kubeletpy.resources.cgroups.values import CgroupError
from tests.virtual_time import on_virtual_time

OWN = 500


class Groups:
    """Cgroups of a machine: pid -> path, "/" for those in none."""

    def __init__(self, *pids: int) -> None:
        self.paths = dict.fromkeys((1, OWN, *pids), "/")
        self.made: list[str] = []
        self.refused: set[int] = set()
        self.started: Callable[[], None] = lambda: None

    def in_none(self) -> set[int]:
        return {pid for pid, path in self.paths.items() if path == "/"}

    def create(self, path: str) -> None:
        self.made.append(path)

    def move_process(self, pid: int, path: str) -> None:
        if pid in self.refused:
            raise CgroupError(f"process {pid}: refused")
        self.paths[pid] = path
        self.started()


def machine(root: Path, groups: Groups, *, contained: bool = False) -> Path:
    for pid in groups.paths:
        (root / str(pid) / "ns").mkdir(parents=True)
        (root / str(pid) / "exe").symlink_to("/bin/daemon")
        space = 2 if contained and pid != 1 else 1
        (root / str(pid) / "ns" / "pid").symlink_to(f"pid:[{space}]")
    return root


def daemons(proc: Path, groups: Groups, kubelet: str = "", system: str = "") -> DaemonCgroups:
    made = cast(ProcessGroups, groups)
    return DaemonCgroups(made, kubelet=kubelet, system=system, proc=proc, own=OWN)


def test_the_agent(tmp_path: Path) -> None:
    groups = Groups(7)
    daemons(machine(tmp_path, groups), groups, kubelet="/agent").move_own()
    assert groups.paths == {1: "/", OWN: "/agent", 7: "/"}


@pytest.mark.parametrize(("kubelet", "own"), [("/agent", "/"), ("", "/system")])
def test_processes_outside_any_cgroup_are_moved(tmp_path: Path, kubelet: str, own: str) -> None:
    groups = Groups(7, 8, 9)
    groups.paths[9] = "/somebodys"
    machine(tmp_path, groups)
    (tmp_path / "8" / "exe").unlink()  # a kernel thread
    daemons(tmp_path, groups, kubelet=kubelet, system="/system").move_system()
    assert groups.paths == {1: "/", OWN: own, 7: "/system", 8: "/", 9: "/somebodys"}


def test_new_processes_are_moved_too_up_to_a_bound(tmp_path: Path) -> None:
    groups = Groups(7)
    machine(tmp_path, groups)
    later = iter(range(1000, 2000))

    def fork() -> None:
        pid = next(later)
        groups.paths[pid] = "/"
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "exe").symlink_to("/bin/daemon")

    groups.started = fork
    daemons(tmp_path, groups, kubelet="/agent", system="/system").move_system()
    moved = [pid for pid, path in groups.paths.items() if path == "/system"]
    assert len(moved) == 10


def test_unmovable_processes_are_named_and_the_others_moved(tmp_path: Path) -> None:
    groups = Groups(6, 7, 8, 9, 10, 11)
    groups.refused = {7, 8, 9, 10}
    machine(tmp_path, groups)
    with pytest.raises(CgroupError) as raised:
        daemons(tmp_path, groups, kubelet="/agent", system="/system").move_system()
    assert str(raised.value) == (
        "process 7: refused; process 8: refused; process 9: refused; and 1 more"
    )
    assert [pid for pid, path in groups.paths.items() if path == "/system"] == [6, 11]


def test_in_a_container_nothing_is_moved(tmp_path: Path) -> None:
    groups = Groups(7)
    made = daemons(machine(tmp_path, groups, contained=True), groups, "/agent", "/system")
    made.move_own()
    made.move_system()
    assert (set(groups.paths.values()), groups.made) == ({"/"}, [])


def test_the_initial_namespace_is_recognized_by_its_number(tmp_path: Path) -> None:
    groups = Groups(7)
    machine(tmp_path, groups)
    (tmp_path / "1" / "ns" / "pid").unlink()  # its namespace is not readable
    made = daemons(tmp_path, groups, kubelet="/agent")
    with pytest.raises(CgroupError):
        made.move_own()
    own = tmp_path / str(OWN) / "ns" / "pid"
    own.unlink()
    own.symlink_to("pid:[4026531836]")
    made.move_own()
    assert groups.paths == {1: "/", OWN: "/agent", 7: "/"}


def test_an_unknown_namespace_is_an_error(tmp_path: Path) -> None:
    groups = Groups()
    with pytest.raises(CgroupError, match="namespace of processes is not known"):
        daemons(tmp_path, groups, kubelet="/agent").move_own()
    assert groups.made == []


@on_virtual_time
async def test_each_minute_with_one_report_per_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups(7)
    groups.refused = {7, OWN}
    made = daemons(machine(tmp_path, groups), groups, "/agent", "/system")
    task = asyncio.create_task(made.run())
    await asyncio.sleep(150)
    groups.refused = set()
    await asyncio.sleep(60)
    task.cancel()
    await asyncio.wait([task])
    assert groups.paths == {1: "/", OWN: "/agent", 7: "/system"}
    assert groups.made == ["/system", "/agent"] * 4
    assert [record.__dict__["field"] for record in caplog.records] == [
        "systemCgroups",
        "kubeletCgroups",
    ]

"""Changes to machine and process at the start, and the logged messages."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from kubeletpy.config import default_settings
from kubeletpy.node.guards import at_start
from kubeletpy.node.guards.at_start import (
    DaemonCgroups,
    GuardedHost,
    MachineAtStart,
    StartSettings,
    compare,
    read_sysctls,
    set_oom_score,
    supports_noswap,
)
from kubeletpy.resources.cgroups.filesystem import ProcessGroups
from kubeletpy.resources.cgroups.values import CgroupError
from tests.kit.virtual_time import on_virtual_time
from tests.unit.node.guards.test_kernel_settings import RIGHT, look_alike

pytestmark = pytest.mark.virtual_time

OWN = 500


def proc(root: Path, **settings: str) -> Path:
    look_alike(root / "sys", {**RIGHT, "kernel.panic": "1\n"})
    (root / str(OWN)).mkdir(parents=True)
    (root / str(OWN) / "oom_score_adj").write_text("0\n")
    return root


class Node:
    """A node whose guards are started."""

    def __init__(self, root: Path, settings: StartSettings, **facts: object) -> None:
        self.events: list[tuple[str, str]] = []
        self.proc = proc(root / "proc")
        supplied = {"cgroup_v2": True, "swap_on": False, "kernel_version": "6.1.0", **facts}
        self.guards = MachineAtStart(
            settings,
            GuardedHost(proc=self.proc, own_pid=OWN),
            lambda reason, message: self.events.append((reason, message)),
            root=root,
            cgroup_v2=bool(supplied["cgroup_v2"]),
            swap_on=bool(supplied["swap_on"]),
            kernel_version=str(supplied["kernel_version"]),
            in_user_namespace=bool(supplied.get("contained")),
        )

    @property
    def score(self) -> str:
        return (self.proc / str(OWN) / "oom_score_adj").read_text().strip()


@pytest.mark.parametrize(
    ("fields", "keep", "sets"),
    [
        ({}, False, True),
        ({}, True, False),
        # protectKernelDefaults refuses wrong settings instead of changing them
        ({"protectKernelDefaults": True}, False, False),
    ],
)
def test_when_kernel_settings_are_set(fields: dict[str, object], keep: bool, sets: bool) -> None:
    settings = StartSettings.from_settings(default_settings(**fields), keep_kernel=keep)
    assert settings == StartSettings(-999, 1_000_000, sets)


@pytest.mark.parametrize("sets", [True, False])
async def test_the_start(tmp_path: Path, sets: bool, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path, StartSettings(-998, 0, sets))
    await node.guards.start()
    assert node.score == "-998"
    assert (not compare(read_sysctls(node.proc / "sys"))) is sets
    assert (node.events, node.guards.refused) == ([], ())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_refused_changes_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, StartSettings(set_kernel_settings=True))
    (node.proc / str(OWN) / "oom_score_adj").unlink()
    (node.proc / "sys/kernel/panic").unlink()
    await node.guards.start()
    task = asyncio.create_task(node.guards.run())
    await asyncio.sleep(1000)
    assert node.guards.refused == (
        "oomScoreAdj -999: No such file or directory",
        "kernel settings: kernel.panic is not readable, must be 10 (No such file or directory)",
    )
    assert len(caplog.records) == 2
    (node.proc / str(OWN) / "oom_score_adj").write_text("0")
    await asyncio.sleep(300)
    assert node.score == "-999"
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("facts", "trial", "reasons"),
    [
        ({"cgroup_v2": False}, None, ["CgroupV1"]),
        ({"swap_on": True, "kernel_version": "6.4.0-1"}, None, []),
        ({"swap_on": True, "kernel_version": "6.3.9"}, True, []),
        (
            {"swap_on": True, "kernel_version": "6.3.9"},
            False,
            ["PossibleMemoryBackedVolumesOnDisk"],
        ),
        (
            {"swap_on": True, "kernel_version": "6.12", "contained": True},
            None,
            ["PossibleMemoryBackedVolumesOnDisk"],
        ),
    ],
)
def test_warnings(
    tmp_path: Path,
    facts: dict[str, object],
    trial: bool | None,
    reasons: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_virtual_time
    async def begin() -> None:
        tried: list[Path] = []

        def mounts(root: Path) -> bool:
            tried.append(root)
            return bool(trial)

        monkeypatch.setattr(at_start, "mounts_noswap", mounts)
        node = Node(tmp_path, StartSettings(), **facts)
        await node.guards.start()
        assert [reason for reason, _ in node.events] == reasons
        assert bool(tried) is (trial is not None)

    begin()


@pytest.mark.parametrize(
    ("version", "contained", "known"),
    [
        ("6.4", False, True),
        ("6.10.1", False, True),
        ("7.0", False, True),
        ("6.3.99", False, None),
        ("5.15.0-generic", False, None),
        ("", False, None),
        ("6.10.1", True, False),
    ],
)
def test_noswap(version: str, contained: bool, known: bool | None) -> None:
    assert supports_noswap(version, in_user_namespace=contained) is known


# Which processes are moved into the cgroups of daemons, and the errors when that fails.


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


# The agent's own process.


@pytest.mark.parametrize(
    ("there", "desired"), [("0\n", -999), ("-999\n", -999), ("-17\n", 0), ("", 5)]
)
def test_the_score_is_set(tmp_path: Path, there: str, desired: int) -> None:
    (tmp_path / "oom_score_adj").write_text(there)
    assert set_oom_score(desired, tmp_path) == ""
    assert int((tmp_path / "oom_score_adj").read_text()) == desired


def test_a_score_that_is_right_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "oom_score_adj").write_text("-999 as it was")
    (tmp_path / "oom_score_adj").write_text("-999\n")
    set_oom_score(-999, tmp_path)
    assert (tmp_path / "oom_score_adj").read_text() == "-999\n"


def test_a_score_that_cannot_be_set_is_named(tmp_path: Path) -> None:
    assert set_oom_score(-999, tmp_path) == "oomScoreAdj -999: No such file or directory"


LIMITED = """
import resource
from kubeletpy.node.guards.at_start import set_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
print(set_open_files({limit}).partition(":")[0])
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("limit", "stated", "limits"), [(0, "", "100 200"), (150, "", "150 150"), (200, "", "200 200")]
)
def test_open_files(limit: int, stated: str, limits: str) -> None:
    assert in_a_process(LIMITED.format(limit=limit)) == [stated, limits]


def test_more_files_than_the_process_may_set() -> None:
    # no process may have more than fs.nr_open, whatever its rights
    nr_open = int(Path("/proc/sys/fs/nr_open").read_text())
    stated, limits = in_a_process(LIMITED.format(limit=nr_open + 1))
    assert (stated, limits) == (f"maxOpenFiles {nr_open + 1}", "200 200")


def in_a_process(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.split("\n")[:2]

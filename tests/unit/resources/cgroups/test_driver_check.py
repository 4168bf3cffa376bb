"""The agent detects from sandboxes which cgroup driver the runtime uses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.cgroups import driver_check, filesystem
from kubeletpy.resources.cgroups.driver_check import MAX_SEARCHES, DriverCheck
from kubeletpy.resources.cgroups.tree import CgroupTree, TreeOptions
from kubeletpy.resources.cgroups.values import CgroupDriver, PodCgroupNames
from tests.kit.cgroups import LookAlike, container, pod, v1_machine, v2_machine

ID = "f0" * 32
POD = pod(container("100m"), uid="a-b")
LEAF = "kubepods-burstable-poda_b.slice"
SLICE = f"/kubepods.slice/kubepods-burstable.slice/{LEAF}"


class Node:
    """A check with the hierarchies that it reads."""

    def __init__(self, root: Path, driver: CgroupDriver, *, reported: bool = False) -> None:
        self.root = root
        self.files = LookAlike.at(root)
        names = PodCgroupNames(driver)
        self.tree = CgroupTree(self.files, TreeOptions(names=names, driver_reported=reported))
        self.events: list[str] = []
        self.changes = 0
        self.check = DriverCheck(
            self.tree,
            self,
            node_name="n",
            runtime_name="containerd",
            pod_name=lambda uid: {"a-b": "default/one"}.get(uid, uid),
            on_change=self.changed,
        )

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append(f"{ref['kind']} {kind} {reason}: {text}")

    def changed(self) -> None:
        self.changes += 1

    def directory(self, path: str) -> None:
        """Creates a cgroup as a runtime does, in every hierarchy."""
        for mount in self.files._every:
            Path(mount + path).mkdir(parents=True, exist_ok=True)

    def container(self, path: str, process: int | None = 4711) -> None:
        """Creates the cgroup of a container; without a process, the container has ended."""
        self.directory(path)
        for mount in self.files._every:
            Path(f"{mount}{path}/cgroup.procs").write_text(f"{process}\n" if process else "")

    def search(self) -> None:
        asyncio.run(self.check.search())

    def made(self, sandbox: str = ID, *, handler: str = "", of: Pod = POD) -> None:
        asyncio.run(self.check.made(of, sandbox, handler))


@pytest.fixture(params=["v1", "v2"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return (v1_machine if request.param == "v1" else v2_machine)(tmp_path / request.param)


@pytest.mark.parametrize(
    ("driver", "place"),
    [
        (CgroupDriver.CGROUPFS, f"/kubepods/burstable/poda-b/{ID}"),
        (CgroupDriver.SYSTEMD, f"{SLICE}/cri-containerd-{ID}.scope"),
        (CgroupDriver.SYSTEMD, f"{SLICE}/crio-{ID}.scope"),
    ],
)
def test_a_sandbox_below_its_pods_cgroup_is_silent(
    root: Path, driver: CgroupDriver, place: str
) -> None:
    node = Node(root, driver)
    node.directory(place)
    node.made()
    assert (node.check.problem(), node.events, node.changes) == ("", [], 0)


@pytest.mark.parametrize("above", ["/system.slice", "", "/a/b/c"])
def test_a_runtime_on_cgroupfs_is_named(
    root: Path, above: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    node.directory(SLICE)
    node.directory(f"{above}/{LEAF}:cri-containerd:{ID}")
    node.made()
    problem = node.check.problem()
    assert 'set "cgroupDriver: cgroupfs" there, or "SystemdCgroup = true"' in problem
    assert node.events == [f"Node Warning CgroupDriverMismatch: {problem}"]
    assert node.changes == 1
    stated = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert stated == [problem]
    node.directory(f"{above}/{LEAF}:cri-containerd:{ID[::-1]}")
    node.made(ID[::-1])
    assert (len(node.events), node.changes) == (1, 1), "once"


def test_a_runtime_on_systemd_is_named_by_its_refusal(root: Path) -> None:
    node = Node(root, CgroupDriver.CGROUPFS)
    error = (
        'runc create failed: expected cgroupsPath to be of format "slice:prefix:name" for systemd '
        f'cgroups, got "/kubepods/burstable/poda-b/{ID}" instead: unknown'
    )
    node.check.refused(POD, "", "no network")
    node.check.refused(POD, "kata", error)
    node.check.refused(pod(container("100m"), uid="c"), "", error)
    assert node.check.problem() == ""
    node.check.refused(POD, "", error)
    node.check.refused(POD, "", error)
    assert 'set "cgroupDriver: systemd" there, or "SystemdCgroup = false"' in node.check.problem()
    assert (len(node.events), node.changes) == (1, 1)


def test_an_error_is_no_evidence_once_a_sandbox_was_in_its_place(root: Path) -> None:
    node = Node(root, CgroupDriver.CGROUPFS)
    node.directory(f"/kubepods/burstable/poda-b/{ID}")
    node.made()
    node.check.refused(
        POD,
        "",
        'expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups, got '
        f'"/kubepods/burstable/poda-b/{ID}" instead',
    )
    assert node.check.problem() == ""


def test_a_correctly_placed_sandbox_ends_a_mismatch(root: Path) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    node.directory(f"/system.slice/{LEAF}:cri-containerd:{ID}")
    node.made()
    assert node.check.problem()
    node.directory(f"{SLICE}/cri-containerd-{ID[::-1]}.scope")
    node.made(ID[::-1])
    assert node.check.problem(), "until a search has shown that nothing is left outside"
    node.search()
    assert (node.check.problem(), len(node.events), node.changes) == ("", 1, 2)


def test_a_restart_of_the_runtime_ends_a_mismatch(root: Path) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    node.directory(f"/system.slice/{LEAF}:cri-containerd:{ID}")
    node.made()
    node.check.connection_changed(False)
    assert node.check.problem()
    node.check.connection_changed(True)
    assert node.check.problem(), "until a search has shown that nothing is left outside"
    node.search()
    assert (node.check.problem(), node.changes) == ("", 2)
    node.made()
    assert (len(node.events), node.changes) == (2, 3), "it was not fixed"


@pytest.mark.parametrize("driver", CgroupDriver)
def test_a_container_left_outside_keeps_the_node_from_being_ready(
    root: Path, driver: CgroupDriver, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(root, driver)
    caplog.set_level(logging.INFO)
    outside = f"/system.slice/{LEAF}:cri-containerd:{ID}"
    other = f"/system.slice/{LEAF.replace('a_b', 'c_d')}:cri-containerd:{ID[::-1]}"
    node.container(outside)
    node.container(other)
    node.check.connection_changed(True)
    node.search()
    problem = node.check.problem()
    kubepods = node.tree.names.kubepods
    assert f"containers of c-d, default/one run outside {kubepods}," in problem
    assert node.events == [f"Node Warning CgroupDriverMismatch: {problem}"]
    node.container(other, process=None)
    node.search()
    assert "containers of default/one run" in node.check.problem()
    assert (len(node.events), node.changes) == (1, 2), "once"
    node.container(outside, process=None)
    node.search()
    assert (node.check.problem(), node.changes) == ("", 3)
    assert caplog.messages[-1] == "the cgroup driver mismatch is over"


def test_a_container_left_outside_outlives_a_mismatch(root: Path) -> None:
    """The runtime has another driver after its restart; the old container still runs."""
    node = Node(root, CgroupDriver.SYSTEMD)
    node.container(f"/system.slice/{LEAF}:cri-containerd:{ID}")
    node.made()
    assert 'set "cgroupDriver: cgroupfs"' in node.check.problem()
    node.check.connection_changed(True)
    node.directory(f"{SLICE}/cri-containerd-{ID[::-1]}.scope")
    node.made(ID[::-1])
    node.search()
    assert "containers of default/one run outside /kubepods.slice" in node.check.problem()
    assert (len(node.events), node.changes) == (2, 2)


def test_a_container_cannot_imitate_one_left_outside(root: Path) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    node.container(f"{SLICE}/cri-containerd-{ID}.scope/{LEAF}:cri-containerd:{ID}")
    node.container("/system.slice/else.slice:cri-containerd:a")
    node.check.connection_changed(True)
    node.search()
    assert (node.check.problem(), node.events, node.changes) == ("", [], 0)


def test_searches_follow_connections_and_repeat_while_a_container_is_outside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    outside = f"/system.slice/{LEAF}:cri-containerd:{ID}"
    monkeypatch.setattr(driver_check, "RECHECK_S", 0.01)

    async def live() -> None:
        changed = asyncio.Event()
        node.check.on_change = changed.set
        task = asyncio.create_task(node.check.run())
        node.container(outside)
        node.check.connection_changed(True)
        await changed.wait()
        assert node.check.problem()
        changed.clear()
        node.container(outside, process=None)
        await changed.wait()
        assert not node.check.problem()
        task.cancel()

    asyncio.run(asyncio.wait_for(live(), 30))


def test_a_confirmed_runtime_that_changes_with_its_restart_is_noticed(root: Path) -> None:
    node = Node(root, CgroupDriver.SYSTEMD, reported=True)
    node.directory(f"{SLICE}/cri-containerd-{ID}.scope")
    node.made()
    other = ID[::-1]
    node.directory(f"/system.slice/{LEAF}:cri-containerd:{other}")
    node.made(other)
    assert node.check.problem() == "", "no runtime changes while it runs"
    node.check.connection_changed(True)
    node.made(other)
    assert "restart the agent" in node.check.problem()


@pytest.mark.parametrize("driver", CgroupDriver)
def test_absent_sandboxes_are_no_evidence(root: Path, driver: CgroupDriver) -> None:
    """Sandboxes that ended, of a runtime without cgroups, and of virtual machines."""
    node = Node(root, driver)
    node.directory(SLICE)
    node.directory(f"/kata_overhead/{ID}")
    node.directory(f"/vms/kata_{ID}")
    for _ in range(MAX_SEARCHES + 5):
        node.made()
    assert (node.check.problem(), node.events, node.changes) == ("", [], 0)


def test_other_handlers_and_pods_without_a_name_are_not_judged(root: Path) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    node.directory(f"/system.slice/{LEAF}:cri-containerd:{ID}")
    node.made(handler="kata")
    node.made(of=pod(container("100m"), uid="../x"))
    assert node.check.problem() == ""


def test_searches_are_bounded_in_number_and_in_size(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(root, CgroupDriver.SYSTEMD)
    searched: list[str] = []
    find = node.files.find

    def counted(desired: Callable[[str], bool]) -> str | None:
        searched.append("x")
        return find(desired)

    monkeypatch.setattr(node.files, "find", counted)
    for _ in range(MAX_SEARCHES + 5):
        node.made()
    assert len(searched) == MAX_SEARCHES
    node.check.connection_changed(True)
    node.directory(f"/system.slice/{LEAF}:cri-containerd:{ID}")
    monkeypatch.setattr(filesystem, "MAX_VISITED", 1)
    node.made()
    assert node.check.problem() == "", "only the first level was visited"
    monkeypatch.setattr(filesystem, "MAX_VISITED", 100)
    node.made()
    assert node.check.problem()

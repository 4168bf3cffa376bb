"""Processes that hold a mount which the agent, a plugin or a driver could not unmount."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Mode,
    OperationFailed,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
)
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.files import disk as module
from kubeletpy.volumes.files.disk import (
    MAX_FILES,
    MAX_S,
    REPORTED,
    HoldingProcess,
    held_by,
    holders,
    holders_text,
    mount,
    unmount,
)
from kubeletpy.volumes.files.paths import mentions_busy
from kubeletpy.volumes.intree.base import InTreePlugin, unmount_and_remove
from kubeletpy.volumes.operations.acts import VolumeActs
from kubeletpy.volumes.operations.model import Operation, OperationKind


@pytest.mark.parametrize(
    ("parts", "busy"),
    [
        ("[Errno 16] Device or resource busy: '/pods/u/volumes/v'", True),
        ("NodeUnpublishVolume of driver d: Internal: unmount failed: target is busy.", True),
        ("umount -i /v: exit status 16: umount.nfs: /v: device is busy", True),
        ("NodeUnstageVolume of driver d: FailedPrecondition: volume is in use", True),
        ("device of the pod: EBUSY", True),
        ("volume directory: it is still mounted: /v", True),
        ("NodeUnpublishVolume of driver d: did not answer within 120s", False),
        ("no such file: /pods/u/volumes/busybox", False),
        ("busy" + " " * 5000, False),
        ("", False),
    ],
)
def test_busy(parts: str, busy: bool) -> None:
    assert mentions_busy(parts) is busy


class Unpublished(InTreePlugin):
    """Volumes that are only taken down."""

    kinds = frozenset()

    async def publish(self, *args: Any, **more: Any) -> Published:
        raise NotImplementedError


class Bound(Unpublished):
    """Volumes that are mounted and unmounted by the agent, as in-tree plugins do."""

    name = "bound"

    async def unpublish(self, left: PublishedOnDisk) -> None:
        await self.in_thread(lambda: unmount_and_remove(left.path), f"umount of {left.path}")

    async def unstage(self, left: StagedOnDisk) -> None:
        await self.in_thread(lambda: unmount_and_remove(left.path), f"umount of {left.path}")


class Driver(Unpublished):
    """Volumes of a driver, whose error message is the only information about its failure."""

    name = "driver"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.parts = "unmount failed: target is busy"

    async def unpublish(self, left: PublishedOnDisk) -> None:
        raise OperationFailed(FailureOutcome.UNCERTAIN, self.parts, call="NodeUnpublishVolume")

    async def unstage(self, left: StagedOnDisk) -> None:
        raise OperationFailed(FailureOutcome.UNCERTAIN, self.parts, call="NodeUnstageVolume")


def taking(kind: OperationKind, path: Path) -> Operation:
    if kind is OperationKind.UNSTAGE:
        staged = StagedOnDisk("p", "p/v", str(path))
        return Operation(kind, "p/v", "p", "the pod ends", staged=staged)
    mount = PublishedOnDisk("p", "p/v", "u", "v", str(path), Mode.FILESYSTEM)
    return Operation(kind, "p/v", "p", "the pod ends", pod_uid="u", mount=mount)


async def refused(plugin: Any, kind: OperationKind, path: Path) -> OperationFailed:
    nobody: Any = None
    acts = VolumeActs(nobody, nobody)
    with pytest.raises(OperationFailed) as caught:
        await acts.carry_out(taking(kind, path), plugin, None, True, None)
    return caught.value


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system, reached through a link, as a root directory may be."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    path = tmp_path / "link/volume"
    path.mkdir()
    mount("tmpfs", str(path), "tmpfs")
    yield path
    if disk.is_mounted(str(path)):
        unmount(os.path.realpath(path))


@pytest.fixture
def holder(mounted: Path) -> Iterator[int]:
    """A process whose working directory is in the mount."""
    with subprocess.Popen(["/bin/sleep", "60"], cwd=mounted) as process:
        yield process.pid
        process.kill()


@pytest.mark.parametrize("kind", [OperationKind.UNPUBLISH, OperationKind.UNSTAGE])
@pytest.mark.parametrize("plugin", [Bound, Driver])
async def test_the_process_is_named(
    mounted: Path, holder: int, plugin: Callable[[Path], Any], kind: OperationKind
) -> None:
    error = await refused(plugin(mounted.parent), kind, mounted)
    assert error.message.endswith(f"; it is in use by process {holder} (sleep)")
    assert error.outcome is FailureOutcome.UNCERTAIN
    assert error.call


async def test_a_driver_that_fails_otherwise(mounted: Path) -> None:
    plugin = Driver(mounted.parent)
    plugin.parts = "no such volume"
    with (mounted / "file").open("w"):
        assert (await refused(plugin, OperationKind.UNPUBLISH, mounted)).message == "no such volume"


async def test_one_search_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0

    def search(path: str) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        os.sched_yield()
        now -= 1
        return f"; {path}"

    monkeypatch.setattr(module, "_scan_holders", search)
    found = await asyncio.gather(*(held_by("busy", f"/{n}") for n in range(50)))
    assert found == [f"; /{n}" for n in range(50)]
    assert most == 1
    assert await held_by("busy", "") == ""


async def test_no_thread_to_search_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "_SCANS", PatientThreads(1))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await held_by("busy", "/v") == "", "the refusal itself is what counts"


# Processes that keep a mount busy, found in a /proc of the test and in the real one.

VOLUME = "/pods/u/volumes/v"
HOLDS = {"cwd": VOLUME}


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/mnt").symlink_to("mnt:[1]")
    (tmp_path / "sys").mkdir()
    return tmp_path


def process(
    proc: Path, pid: int, links: Mapping[str, str], command: bytes = b"sh\n", namespace: int = 1
) -> None:
    directory = proc / str(pid)
    (directory / "fd").mkdir(parents=True)
    (directory / "ns").mkdir()
    (directory / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
    (directory / "comm").write_bytes(command)
    for name, target in {"cwd": "/", "root": "/", "exe": "/bin/sh", **links}.items():
        (directory / name.replace("fd", "fd/")).symlink_to(target)


@pytest.mark.parametrize(
    ("links", "held"),
    [
        ({}, False),
        ({"cwd": VOLUME}, True),
        ({"root": f"{VOLUME}/root"}, True),
        ({"exe": f"{VOLUME}/program (deleted)"}, True),
        ({"fd3": "socket:[1]", "fd4": f"{VOLUME}/a"}, True),
        ({"cwd": f"{VOLUME}er", "fd3": "/pods/u/volumes"}, False),
    ],
)
def test_links(proc: Path, links: dict[str, str], held: bool) -> None:
    process(proc, 7, links)
    assert holders(VOLUME, str(proc)) == ([HoldingProcess(7, "sh")] if held else [])


def test_those_of_this_namespace_come_first_and_not_all(proc: Path) -> None:
    process(proc, 1, HOLDS, namespace=2)
    for pid in range(2, 4):
        process(proc, pid, HOLDS)
    found = holders(VOLUME, str(proc))
    assert sorted((each.pid, each.apart) for each in found) == [(1, True), (2, False), (3, False)]
    assert found[-1].apart
    for pid in range(4, 20):
        process(proc, pid, HOLDS)
    assert [each.apart for each in holders(VOLUME, str(proc))] == [False] * REPORTED


@pytest.mark.parametrize(
    ("command", "reported"),
    [(b"a" * 100, "a" * 16), (b"x\x1b[1m\xff\n", "x?[1m\ufffd"), (b"a\nb", "a"), (b"", "?")],
)
def test_a_command_has_any_name(proc: Path, command: bytes, reported: str) -> None:
    process(proc, 7, HOLDS, command)
    assert holders(VOLUME, str(proc)) == [HoldingProcess(7, reported)]


def test_a_process_that_ends_meanwhile(proc: Path) -> None:
    (proc / "8").mkdir()
    (proc / "9").mkdir()
    (proc / "9/cwd").symlink_to(VOLUME)
    assert holders(VOLUME, str(proc)) == [HoldingProcess(9, "?", apart=True)]
    assert holders(VOLUME, str(proc / "none")) == []


def test_the_search_is_bounded(proc: Path) -> None:
    process(proc, 7, HOLDS)
    times = iter([0.0, MAX_S + 0.1])
    assert holders(VOLUME, str(proc), now=lambda: next(times)) == [], "no longer than that"
    process(proc, 8, {f"fd{number}": "/x" for number in range(MAX_FILES + 50)})
    assert [each.pid for each in holders(VOLUME, str(proc))] == [7]


def test_the_real_one(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w"):
        mine = [each for each in holders(str(tmp_path)) if each.pid == os.getpid()]
    assert [each.apart for each in mine] == [False]
    assert os.getpid() not in [each.pid for each in holders(str(tmp_path))]


def test_the_text_about_holders() -> None:
    assert holders_text([]) == ""
    assert holders_text([HoldingProcess(7, "sh"), HoldingProcess(8, "dd", apart=True)]) == (
        "; it is in use by process 7 (sh), process 8 (dd, in another mount namespace)"
    )

"""Processes that hold a mount which the agent, a plugin or a driver could not unmount."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
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
from kubeletpy.volumes.files.disk import held_by, mount, unmount
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

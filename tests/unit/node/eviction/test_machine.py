"""Signals read from a machine, against imitations of its files."""

from __future__ import annotations

import asyncio
import os
import re
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.text import sizes
from kubeletpy.node.eviction import machine
from kubeletpy.node.eviction.decide import Layout, Signal
from kubeletpy.node.eviction.machine import MachineSignals, MemoryNotices, node_memory
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.disks import space
from kubeletpy.remote.errors import Unavailable
from kubeletpy.remote.generated import api_pb2 as cri

MEMINFO = """MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    700 kB
Buffers:          20 kB
Cached:          400 kB
SwapCached:        5 kB
Active(file):    150 kB
Inactive(file):  200 kB
AnonPages:       300 kB
Slab:             90 kB
"""


class Images:
    """A runtime that reports its image and layer paths, after ``silent`` failed calls."""

    def __init__(self, *layers: str, silent: int = 0) -> None:
        self._layers = layers
        self.silent = silent

    async def image_fs_info(self) -> Any:
        if self.silent:
            self.silent -= 1
            raise Unavailable("ImageFsInfo", "starting")

        def usage_of(path: str) -> cri.FilesystemUsage:
            return cri.FilesystemUsage(fs_id=cri.FilesystemIdentifier(mountpoint=path))

        images, *layers = self._layers
        return cri.ImageFsInfoResponse(
            image_filesystems=[usage_of(images)],
            container_filesystems=[usage_of(each) for each in layers],
        )


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "loadavg").write_text("1.36 3.49 4.53 2/3518 3715089")
    (tmp_path / "sys/kernel/pid_max").write_text("32768\n")
    (tmp_path / "sys/kernel/threads-max").write_text("99999\n")
    return tmp_path


def signals(proc: Path, images: Images | None = None) -> MachineSignals:
    notices = MemoryNotices(None, 2, pressure=proc / "none")
    runtime = cast(Any, images or Images(str(proc)))
    return MachineSignals(None, "", str(proc), runtime, notices, proc=proc)


def test_kernel_memory_and_inactive_files_do_not_count_as_used() -> None:
    meminfo = {"MemTotal": 1000, "AnonPages": 300, "Cached": 400, "Buffers": 20, "Slab": 90}
    assert node_memory(meminfo) == (280, 1000)
    assert node_memory({**meminfo, "Inactive(file)": 200}) == (480, 1000)
    assert node_memory({}) is None
    assert node_memory({"MemTotal": 5}) is None


def test_memory_signals_agree_with_the_summary() -> None:
    reported = proc_text.machine({"meminfo": MEMINFO}, 100, 0).memory_available
    found = node_memory(sizes(MEMINFO))
    assert found is not None
    assert found[0] == reported


@pytest.mark.parametrize(
    ("huge_pages", "available"), [(0, 475), (100, 375), (100 + 2, 373), (475, 0), (900, 0)]
)
def test_huge_pages_are_not_available(proc: Path, huge_pages: int, available: int) -> None:
    """For eviction and in the Summary alike; docs/reference/behaviour.md, u: ka16."""

    async def observe() -> None:
        notices = MemoryNotices(None, 2, pressure=proc / "none")
        runtime = cast(Any, Images(str(proc)))
        of = MachineSignals(
            None, "", str(proc), runtime, notices, huge_pages=huge_pages << 10, proc=proc
        )
        seen = (await of.observe([Signal.MEMORY]))[Signal.MEMORY]
        assert (seen.available, seen.capacity) == (available << 10, 1000 << 10)
        await of.close()

    asyncio.run(observe())
    reported = proc_text.machine({"meminfo": MEMINFO}, 100, 0, huge_pages << 10)
    assert reported.memory_available == available << 10
    assert reported.working_set == proc_text.machine({"meminfo": MEMINFO}, 100, 0).working_set


def test_an_observation(proc: Path) -> None:
    async def observe() -> None:
        of = signals(proc)
        seen = await of.observe(list(Signal))
        memory = seen[Signal.MEMORY]
        assert (memory.available, memory.capacity) == (475 << 10, 1000 << 10)
        assert (seen[Signal.PIDS].available, seen[Signal.PIDS].capacity) == (32768 - 3518, 32768)
        assert seen[Signal.NODEFS].capacity == seen[Signal.IMAGEFS].capacity > 0
        assert Signal.ALLOCATABLE_MEMORY not in seen, "no cgroup is known"
        assert set(await of.observe([Signal.NODEFS_INODES])) == {Signal.NODEFS_INODES}
        await of.close()

    asyncio.run(observe())


def test_imagefs_is_observed_once_the_runtime_reports_it(proc: Path) -> None:
    async def observe() -> None:
        of = signals(proc, Images(str(proc), str(proc), silent=1))
        assert await of.observe([Signal.IMAGEFS]) == {}
        assert Signal.IMAGEFS in await of.observe([Signal.IMAGEFS])
        assert await of.layout() is Layout.ONE
        await of.close()

    asyncio.run(observe())


def test_the_layout_follows_from_devices(proc: Path) -> None:
    assert Path("/dev/shm").stat().st_dev != proc.stat().st_dev

    async def observe() -> None:
        for where, layout in (
            (("/dev/shm",), Layout.APART),
            (("/dev/shm", str(proc)), Layout.SPLIT),
            ((str(proc), str(proc)), Layout.ONE),
        ):
            of = signals(proc, Images(*where))
            assert await of.layout() is layout
            await of.close()

    asyncio.run(observe())


def test_a_hanging_file_system_does_not_block_other_signals(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    requested: list[str] = []
    real = space

    def hangs(path: str, at: int) -> Any:
        requested.append(path)
        answers.wait()
        return real(path, at)

    monkeypatch.setattr(machine, "space", hangs)
    monkeypatch.setattr(machine, "STATFS_WAIT_S", 0.05)

    async def observe() -> None:
        of = signals(proc)
        for _ in range(3):
            seen = await of.observe([Signal.MEMORY, Signal.NODEFS])
            assert set(seen) == {Signal.MEMORY}
        assert len(requested) == 1, "one call at a time"
        answers.set()
        monkeypatch.setattr(machine, "STATFS_WAIT_S", 5)
        assert set(await of.observe([Signal.NODEFS])) == {Signal.NODEFS}
        await of.close()

    asyncio.run(observe())


def test_without_files_nothing_is_observed(tmp_path: Path) -> None:
    async def observe() -> None:
        of = signals(tmp_path)
        assert await of.observe([Signal.MEMORY, Signal.PIDS]) == {}
        await of.close()

    asyncio.run(observe())


# Memory thresholds registered with the kernel, against imitations of a memory cgroup.

NONE = Path("/nowhere")


def group(mount: Path, name: str, used: str) -> Path:
    directory = mount / name
    directory.mkdir(exist_ok=True)
    (directory / "memory.usage_in_bytes").write_text(used)
    (directory / "cgroup.event_control").write_text("")
    return directory / "cgroup.event_control"


def descriptors() -> set[Path]:
    return set(Path("/proc/self/fd").iterdir())


def registered(control: Path) -> tuple[int, int, int]:
    """Descriptors of event and usage, and the threshold, as registered."""
    found = re.fullmatch(r"(\d+) (\d+) (\d+)", control.read_text())
    assert found is not None, control.read_text()
    event, usage, threshold = (int(number) for number in found.groups())
    return event, usage, threshold


@pytest.mark.parametrize(("name", "below"), [("/", ""), ("/kubepods", "kubepods")])
async def test_a_threshold_of_version_1(tmp_path: Path, name: str, below: str) -> None:
    control = group(tmp_path, below, "1000\n")
    notified = MemoryNotices(tmp_path, 1, pressure=NONE)
    notified.arm({name: 234})
    event, _, threshold = registered(control)
    assert threshold == 1234, "what is used, and what may be used more"
    assert notified.count == 0
    os.eventfd_write(event, 1)
    await notified.wait(5)
    assert notified.count == 1
    await notified.wait(0.01)
    assert notified.count == 1, "it is notified once"
    notified.close()


async def test_thresholds_are_armed_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = group(tmp_path, "", "1000")
    notified = MemoryNotices(tmp_path, 1, pressure=NONE)
    notified.arm({"/": 1})
    notified.arm({"/": 2})
    assert registered(control)[2] == 1001
    monkeypatch.setattr(machine, "REARM_S", 0.0)
    notified.arm({"/": 2})
    assert registered(control)[2] == 1002
    notified.close()
    notified.arm({"/": 3})
    assert registered(control)[2] == 1002


@pytest.mark.parametrize("used", ["", "lots", "-1"])
async def test_usage_that_can_not_be_read(tmp_path: Path, used: str) -> None:
    control = group(tmp_path, "", used)
    notified = MemoryNotices(tmp_path, 1, pressure=NONE)
    notified.arm({"/": 1})
    assert control.read_text() == ""
    notified.close()


@pytest.mark.parametrize("missing", ["memory.usage_in_bytes", "cgroup.event_control"])
@pytest.mark.parametrize("mount", [True, False])
async def test_missing_files_leave_no_descriptors(
    tmp_path: Path, missing: str, mount: bool
) -> None:
    group(tmp_path, "", "1000")
    (tmp_path / missing).unlink()
    before = descriptors()
    notified = MemoryNotices(tmp_path if mount else None, 1, pressure=NONE)
    notified.arm({"/": 1, "": 1})
    assert descriptors() == before
    notified.close()


async def test_version_2_has_no_thresholds(tmp_path: Path) -> None:
    """A plain file in place of memory.events reports nothing either."""
    control = group(tmp_path, "kubepods", "1000")
    (tmp_path / "kubepods" / "memory.events").write_text("low 0\n")
    before = descriptors()
    notified = MemoryNotices(tmp_path, 2, pressure=NONE)
    notified.arm({"/": 1, "/kubepods": 1})
    assert control.read_text() == ""
    assert descriptors() == before
    notified.close()


async def test_a_waiter_can_be_woken(tmp_path: Path) -> None:
    notified = MemoryNotices(tmp_path, 2, pressure=NONE)
    notified.wake()
    async with asyncio.timeout(5):
        await notified.wait(60)
    begun = asyncio.get_running_loop().time()
    await notified.wait(0.05)
    assert asyncio.get_running_loop().time() - begun >= 0.05, "once"
    assert notified.count == 0, "nobody but the kernel counts"
    notified.close()

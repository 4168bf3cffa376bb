"""Memory thresholds registered with the kernel, against imitations of a memory cgroup."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from kubeletpy.node.eviction import machine
from kubeletpy.node.eviction.machine import MemoryNotices

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

"""Memory reports of the kernel: real memory cgroups, and files of the unified tree.

A hybrid machine has no ``memory.events`` of cgroup v2. The ``cgroup.events`` of its unified tree
stands in for it: the kernel reports its changes in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.node.eviction import machine
from kubeletpy.node.eviction.machine import MemoryNotices
from tools.env import kernel_limits as kernel

MEMORY = kernel.hierarchy("memory")
UNIFIED = kernel.CGROUPS if kernel.VERSION == 2 else kernel.CGROUPS / "unified"
MI = 1 << 20
NONE = Path("/nowhere")
EATS = """
import sys
sys.stdin.readline()
eaten = bytearray(int(sys.argv[1]))
print("full", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def _group(mount: Path) -> Iterator[str]:
    name = f"kubeletpy-notices-{uuid.uuid4().hex[:8]}"
    (mount / name).mkdir()
    try:
        yield f"/{name}"
    finally:
        with contextlib.suppress(FileNotFoundError):
            (mount / name).rmdir()


@contextlib.contextmanager
def _eater(group: Path, amount: int) -> Iterator[subprocess.Popen[str]]:
    """A process in a cgroup that takes so many bytes after a line on its stdin."""
    child = subprocess.Popen(
        [sys.executable, "-c", EATS, str(amount)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        yield child
    finally:
        child.kill()
        child.communicate()


def _start_eating(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() in ("full\n", "")  # above a limit the kernel kills it


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(("eats", "noticed"), [(40 * MI, True), (4 * MI, False)])
async def test_a_cgroup_that_reaches_its_margin(eats: int, noticed: bool) -> None:
    with _group(MEMORY) as name, _eater(Path(f"{MEMORY}{name}"), eats) as child:
        if kernel.VERSION == 2:  # reports what reaches a limit
            (MEMORY / name[1:] / kernel.MEMORY_LIMIT_FILE).write_text(str(20 * MI))
        notified = MemoryNotices(MEMORY, kernel.VERSION, pressure=NONE)
        notified.arm({name: 20 * MI})
        await asyncio.to_thread(_start_eating, child)
        await notified.wait(30.0 if noticed else 0.2)
        assert (notified.count > 0) is noticed
        notified.close()


async def test_arming_anew_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "REARM_S", 0.0)
    with _group(MEMORY) as name:
        notified = MemoryNotices(MEMORY, kernel.VERSION, pressure=NONE)
        before = _descriptors()
        notified.arm({name: MI})
        armed = _descriptors()
        for _ in range(20):
            notified.arm({name: MI, "": MI, "/gone": MI})
        assert _descriptors() == armed
        notified.close()
        assert _descriptors() == before
        notified.arm({name: MI})
        assert _descriptors() == before, "what is closed stays closed"


@pytest.fixture
def events(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A mount point whose ``/pods`` has the memory.events of a real cgroup, and that cgroup."""
    with _group(UNIFIED) as name:
        (tmp_path / "pods").mkdir()
        (tmp_path / "pods" / "memory.events").symlink_to(f"{UNIFIED}{name}/cgroup.events")
        yield tmp_path, Path(f"{UNIFIED}{name}")


async def test_a_cgroup_that_reports_events(events: tuple[Path, Path]) -> None:
    mount, group = events
    notified = MemoryNotices(mount, 2, pressure=NONE)
    notified.arm({"/pods": 1, "/": 1})
    await notified.wait(0.2)
    assert notified.count == 0, "there was no event yet"
    for number in (1, 2):
        with _eater(group, 1):
            await notified.wait(5)
            assert notified.count >= number * 2 - 1
            before = notified.count
            await asyncio.sleep(0.1)
            assert notified.count == before, "one notice an event"
        await notified.wait(5)
    assert notified.count == 4
    notified.close()


async def test_a_removed_cgroup_reports_nothing_more(
    events: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "REARM_S", 0.0)
    mount, group = events
    notified = MemoryNotices(mount, 2, pressure=NONE)
    before = _descriptors()
    notified.arm({"/pods": 1})
    group.rmdir()
    await notified.wait(0.2)
    assert notified.count <= 1
    notified.arm({"/pods": 1})
    assert _descriptors() == before
    seen = notified.count
    group.mkdir()
    notified.arm({"/pods": 1})
    with _eater(group, 1):
        await notified.wait(5)
    assert notified.count > seen, "another cgroup of that name is watched"
    notified.close()
    assert _descriptors() == before


@pytest.mark.needs("pressure stalls")
async def test_stalls_are_watched_where_the_kernel_reports_them() -> None:
    before = _descriptors()
    notified = MemoryNotices(None, 1)
    notified.arm({})
    assert _descriptors() == before + 2, "the file, and what waits for it"
    notified.arm({})
    assert _descriptors() == before + 2
    notified.close()
    assert _descriptors() == before

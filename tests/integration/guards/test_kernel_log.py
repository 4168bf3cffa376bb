"""News of the OOM killer as this machine's kernel writes them to /dev/kmsg.

A test cannot use up the memory of the machine itself: the records of such a kill, as another kernel
wrote them, are in the unit tests of the parser.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.node.guards.oom_watch import (
    MARK,
    RECORD_BYTES,
    KernelRecord,
    Kill,
    OOMWatch,
    open_kernel_log,
    parse_kernel_record,
)
from tools.env import kernel_limits as kernel

KMSG = Path("/dev/kmsg")
MI = 1 << 20
EATS = """
import sys
sys.stdin.readline()
eaten = []
while True:
    eaten.append(bytearray(1 << 20))
"""


def changes(descriptor: int) -> list[KernelRecord]:
    """Records that were written since the last call."""
    found: list[KernelRecord] = []
    while True:
        try:
            record = parse_kernel_record(os.read(descriptor, RECORD_BYTES))
        except BlockingIOError:
            return found
        except BrokenPipeError:
            continue
        if record is not None:
            found.append(record)


@pytest.fixture
def descriptor() -> Iterator[int]:
    """Descriptor of the log, at its end."""
    opened = open_kernel_log()
    os.lseek(opened, 0, os.SEEK_END)
    yield opened
    os.close(opened)


def killed_in_a_cgroup() -> int:
    """Have the kernel kill a process in a cgroup that is too small; its id."""
    group = kernel.hierarchy("memory") / f"kubeletpy-oom-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    try:
        (group / kernel.MEMORY_LIMIT_FILE).write_text(str(16 * MI))
        with subprocess.Popen([sys.executable, "-c", EATS], stdin=subprocess.PIPE) as child:
            (group / "cgroup.procs").write_text(str(child.pid))
            child.communicate(b"\n", timeout=60)
        assert child.returncode == -9
        return child.pid
    finally:
        group.rmdir()


def forge(text: str) -> None:
    """Write as a process, with the kernel's level."""
    with KMSG.open("w") as log:
        log.write(f"<3>{text}\n")


async def test_only_the_kernel_reports_that_the_machine_has_no_memory_left(
    tmp_path: Path, descriptor: int
) -> None:
    notified: list[Kill] = []
    watch = OOMWatch(open_kernel_log, tmp_path / MARK, "this boot", notified.append)
    task = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(30):
            while not (tmp_path / MARK).exists():  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)
        pid = await asyncio.to_thread(killed_in_a_cgroup)
        forge(f"forged invoked oom-killer: order=0 {os.getpid()}")
        forge(f"Out of memory: Killed process 1 (forged) {os.getpid()}")
        written = changes(descriptor)
        await asyncio.sleep(0.2)  # the watch has read them too: a read does not wait
    finally:
        task.cancel()
        await asyncio.wait({task})
    of_cgroup = [r for r in written if f"Killed process {pid} " in r.text]
    forged = [r for r in written if r.text.endswith(f"{os.getpid()}")]
    assert [r.from_kernel for r in of_cgroup] == [True]
    assert of_cgroup[0].text.startswith("Memory cgroup out of memory: ")
    assert any(r.text.startswith("oom-kill:constraint=CONSTRAINT_MEMCG,") for r in written)
    assert [r.from_kernel for r in forged] == [False, False]
    assert notified == []

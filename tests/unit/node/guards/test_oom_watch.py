"""Following the kernel's log: each kill is reported once, over restarts and despite errors."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletpy.node.guards.oom_watch import MARK, Kill, OOMWatch
from tests.unit.node.guards.test_kernel_log import BEGIN, IN_GROUP, KILLED

pytestmark = pytest.mark.virtual_time


class KernelLog:
    """A log in which each record is one read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records: list[bytes] = []
        self.writers: list[socket.socket] = []
        self.notified: list[Kill] = []

    def open(self) -> int:
        reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader.setblocking(False)
        self.writers.append(writer)
        for record in self.records:
            writer.send(record)
        return reader.detach()

    def write(self, *texts: str, priority: int = 4) -> None:
        for text in texts:
            self.raw(f"{priority},{len(self.records)},{len(self.records)},-;{text}\n".encode())

    def raw(self, record: bytes) -> None:
        self.records.append(record)
        for writer in self.writers:
            writer.send(record)

    def mark(self) -> object:
        return json.loads((self.root / MARK).read_text())

    @asynccontextmanager
    async def watched(self, boot_id: str = "b1") -> AsyncIterator[None]:
        watch = OOMWatch(self.open, self.root / MARK, boot_id, self.notified.append)
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(1)
        try:
            yield
            await asyncio.sleep(1)
        finally:
            task.cancel()
            await asyncio.wait([task])
            for writer in self.writers:
                writer.close()
            self.writers.clear()


async def test_kills_before_the_first_start_are_ignored(tmp_path: Path) -> None:
    kernel = KernelLog(tmp_path)
    kernel.write(BEGIN, KILLED, "later")
    async with kernel.watched():
        assert kernel.notified == []
        kernel.write("x", BEGIN, IN_GROUP, BEGIN, "y", KILLED)
    assert kernel.notified == [Kill(8, "stress", 4711)]
    assert kernel.mark() == {"bootID": "b1", "sequence": 8}


async def test_kills_are_reported_once_over_restarts_even_late(tmp_path: Path) -> None:
    kernel = KernelLog(tmp_path)
    async with kernel.watched():
        kernel.write(BEGIN, KILLED)
    kernel.write(BEGIN, KILLED)  # while the agent does not run
    async with kernel.watched():
        pass
    async with kernel.watched():
        pass
    assert [kill.sequence for kill in kernel.notified] == [1, 3]


async def test_another_boot_starts_anew(tmp_path: Path) -> None:
    kernel = KernelLog(tmp_path)
    kernel.write(*["x"] * 40)
    async with kernel.watched():
        kernel.write(BEGIN, KILLED)
    kernel.records.clear()
    async with kernel.watched("b2"):
        kernel.write(BEGIN, KILLED)
    assert [kill.sequence for kill in kernel.notified] == [41, 1]


@pytest.mark.parametrize(
    "mark", [b"", b"[]", b"{", b"\xff", b'{"bootID": "b1"}', b'{"bootID": "b1", "sequence": "1"}']
)
async def test_an_invalid_mark(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / MARK).write_bytes(mark)
    kernel = KernelLog(tmp_path)
    kernel.write(BEGIN, KILLED)
    async with kernel.watched():
        kernel.write(BEGIN, KILLED)
    assert [kill.sequence for kill in kernel.notified] == [3]


async def test_hostile_records_and_floods_are_survived(tmp_path: Path) -> None:
    kernel = KernelLog(tmp_path)
    async with kernel.watched():
        for record in (b";", b"\0" * 9000, b"4,x,y,-;z", b"4," + b"1" * 5000 + b",1,-;"):
            kernel.raw(record)
        kernel.write(BEGIN, KILLED, priority=12)  # any process with access to the log
        for _ in range(5):
            kernel.write(*["noise"] * 40)
            await asyncio.sleep(0.1)
        kernel.write(BEGIN, KILLED)
    assert [kill.process for kill in kernel.notified] == ["stress"]


async def test_overwritten_records_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, read, lost = KernelLog(tmp_path), os.read, [True]

    def losing(descriptor: int, size: int) -> bytes:
        if lost.pop() if lost else False:
            raise OSError(errno.EPIPE, "overwritten")
        return read(descriptor, size)

    async with kernel.watched():
        monkeypatch.setattr(os, "read", losing)
        kernel.write(BEGIN, KILLED)
    monkeypatch.undo()
    assert [kill.process for kill in kernel.notified] == ["stress"]
    assert not lost


async def test_a_missing_log_is_reported_once_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, errors = KernelLog(tmp_path), [OSError(errno.EPERM, "no")] * 3

    def refusing() -> int:
        if errors:
            raise errors.pop()
        return kernel.open()

    task = asyncio.create_task(
        OOMWatch(refusing, tmp_path / MARK, "b", kernel.notified.append).run()
    )
    await asyncio.sleep(200)
    kernel.write(BEGIN, KILLED)
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert len(kernel.notified) == 1
    assert [record.getMessage()[:16] for record in caplog.records] == ["the kernel's log"]

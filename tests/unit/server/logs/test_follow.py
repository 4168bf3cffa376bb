"""Following a log: rotations, the end of the container, disconnecting clients."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import Unavailable
from kubeletpy.server.logs.follow import LogFile, LogStreams
from kubeletpy.server.logs.records import LogOptions
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from tests.descriptors import open_descriptors

LINE = "2026-01-02T03:04:05.1Z stdout F %s\n"


@dataclass
class Container:
    """One container with its log, its cache and the bytes that a client has received."""

    root: Path
    cache: PodStatusCache = field(default_factory=PodStatusCache)
    got: bytearray = field(default_factory=bytearray)
    changes: asyncio.Event = field(default_factory=asyncio.Event)
    observed: int = 0
    reopen_error: Exception | None = None

    def __post_init__(self) -> None:
        self.path = self.root / "pod" / "c" / "0.log"
        self.path.parent.mkdir(parents=True)
        self.file = self.path.open("a")
        self.streams = LogStreams(str(self.root), self.cache)
        self.state(running=True)

    def state(self, *, running: bool) -> None:
        self.observed += 1
        state = ContainerState.RUNNING if running else ContainerState.EXITED
        record = ContainerStatus("id", "c", state, log_path=str(self.path))
        self.cache.set(
            PodRuntimeStatus("u", "p", "n", containers=(record,), observed_at=self.observed)
        )

    def write_lines(self, *texts: str) -> None:
        for text in texts:
            self.file.write(LINE % text)
        self.file.flush()

    async def reopen_container_log(self, container_id: str) -> None:
        if self.reopen_error is not None:
            raise self.reopen_error
        self.write_lines("before the reopen")
        self.file.close()
        self.file = self.path.open("a")

    async def write(self, data: bytes) -> None:
        self.got += data
        self.changes.set()

    async def follow(self, **options: Any) -> asyncio.Task[None]:
        log = await self.streams.open(str(self.path), "")
        made = LogOptions(follow=True, **options)
        return asyncio.create_task(self.streams.send(log, "u", "id", made, self.write))

    async def until(self, text: str) -> None:
        async with asyncio.timeout(5):
            while not self.got.endswith(text.encode()):
                self.changes.clear()
                await self.changes.wait()


@pytest.fixture
async def container(tmp_path: Path) -> AsyncIterator[Container]:
    made = Container(tmp_path / "logs")
    yield made
    made.file.close()
    made.streams.close()


async def test_lines_come_as_they_are_written_until_the_container_ends(
    container: Container,
) -> None:
    container.write_lines("a", "b")
    task = await container.follow(tail=1)
    await container.until("b\n")
    container.write_lines("c")
    await container.until("c\n")
    container.file.write(LINE.strip() % "no newline")
    container.file.flush()
    container.state(running=False)
    async with asyncio.timeout(5):
        await task
    assert bytes(container.got) == b"b\nc\nno newline\n"
    assert len(container.streams._watches) == 0


async def test_rotations_lose_and_repeat_nothing(container: Container, tmp_path: Path) -> None:
    clock = type("Now", (), {"now": lambda self: container.observed * 100.0})()
    rotator = LogRotator(
        container,  # type: ignore[arg-type]
        container.cache,
        str(container.root),
        RotationSettings(max_size=20, max_files=3),
        clock,
    )
    task = await container.follow()
    for number in range(5):
        container.write_lines(f"line {number}")
        container.state(running=True)
        await rotator.rotate_due()
        container.write_lines(f"after {number}")
        await container.until(f"after {number}\n")
    container.state(running=False)
    await task
    expected = "".join(f"line {n}\nbefore the reopen\nafter {n}\n" for n in range(5))
    assert container.got.decode() == expected
    names = sorted(path.name for path in container.path.parent.iterdir())
    assert len(names) == 3
    assert [name.endswith(".gz") for name in names] == [False, True, False]
    with gzip.open(container.path.parent / names[1], "rt") as packed:
        assert "before the reopen" in packed.read()


async def test_late_lines_of_the_old_file_come_before_the_new_file(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    is_written = LogFile.is_written

    def checked(log: LogFile) -> bool:
        loop.call_soon_threadsafe(requested.set)
        return is_written(log)

    monkeypatch.setattr(LogFile, "is_written", checked)
    container.write_lines("first")
    task = await container.follow()
    await container.until("first\n")
    container.path.rename(container.path.with_name("0.log.20260101-000000"))
    container.path.write_text(LINE % "new")
    async with asyncio.timeout(5):
        await requested.wait()
        requested.clear()
        with container.path.open("a") as new:
            new.write(LINE % "newer")
        await requested.wait()
    container.write_lines("late")
    container.file.close()
    await container.until("newer\n")
    container.state(running=False)
    async with asyncio.timeout(5):
        await task
    assert container.got.decode() == "first\nlate\nnew\nnewer\n"


@pytest.mark.parametrize("rotations", [1, 2, 3, 5])
async def test_a_client_that_is_rotations_behind_misses_nothing(
    container: Container, rotations: int
) -> None:
    clock = type("Now", (), {"now": lambda self: container.observed * 100.0})()
    rotator = LogRotator(
        container,  # type: ignore[arg-type]
        container.cache,
        str(container.root),
        RotationSettings(max_size=20, max_files=8),
        clock,
    )
    started, gate = asyncio.Event(), asyncio.Event()

    async def write(data: bytes) -> None:
        container.got += data
        started.set()
        await gate.wait()

    container.write_lines("first")
    log = await container.streams.open(str(container.path), "")
    options = LogOptions(follow=True)
    task = asyncio.create_task(container.streams.send(log, "u", "id", options, write))
    await started.wait()
    for number in range(rotations):
        container.write_lines(*(f"{number}: line {line} of many" for line in range(20_000)))
        os.utime(container.path, ns=(0, container.observed * 10**9))
        container.state(running=True)
        await rotator.rotate_due()
    container.write_lines("end")
    packed = len(list(container.path.parent.glob("*.gz")))
    assert packed == rotations - 1, "all but the newest are compressed"
    container.state(running=False)
    gate.set()
    async with asyncio.timeout(10):
        await task
    expected = ["first"]
    for number in range(rotations):
        expected += [f"{number}: line {line} of many" for line in range(20_000)]
        expected.append("before the reopen")
    assert container.got.decode().splitlines() == [*expected, "end"]


async def test_a_runtime_that_can_not_reopen_keeps_its_log(container: Container) -> None:
    clock = type("Now", (), {"now": lambda self: 1.0})()
    settings = RotationSettings(max_size=1)
    rotator = LogRotator(container, container.cache, str(container.root), settings, clock)  # type: ignore[arg-type]
    container.reopen_error = Unavailable("ReopenContainerLog", "gone")
    container.write_lines("x")
    await rotator.rotate_due()
    assert [path.name for path in container.path.parent.iterdir()] == ["0.log"]


async def test_disconnected_clients_leave_nothing_behind(container: Container) -> None:
    before = open_descriptors()
    tasks = [await container.follow() for _ in range(200)]
    await asyncio.sleep(0)
    container.write_lines("x")
    await container.until("x\n")
    assert open_descriptors() <= before + 201, "one watch for all"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(5):
        while open_descriptors() > before + 1:  # noqa: ASYNC110 - threads close what they were reading
            await asyncio.sleep(0.01)
    assert len(container.streams._watches) == 0
    assert container.streams._changes._waiting == {}


async def test_a_slow_client_holds_back_the_reading(container: Container) -> None:
    container.write_lines(*("y" * 1000 for _ in range(3000)))
    gate = asyncio.Event()
    pieces: list[int] = []

    async def write(data: bytes) -> None:
        pieces.append(len(data))
        await gate.wait()

    log = await container.streams.open(str(container.path), "")
    task = asyncio.create_task(container.streams.send(log, "u", "id", LogOptions(), write))
    async with asyncio.timeout(5):
        while not pieces:  # noqa: ASYNC110 - no event for a first piece
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert len(pieces) == 1
    gate.set()
    await task
    assert sum(pieces) == 3000 * 1001


async def test_a_tail_that_is_nowhere_ends_with_its_client(tmp_path: Path) -> None:
    """A terabyte without a line is searched in slices, by threads that do nothing else."""
    one = Container(tmp_path)
    os.truncate(one.path, 1 << 40)
    clients = [await one.follow(tail=1) for _ in range(40)]
    async with asyncio.timeout(5):
        for _ in range(20):
            await asyncio.to_thread(lambda: None)
    for client in clients:
        client.cancel()
    await asyncio.wait(clients, timeout=5)
    assert all(client.cancelled() for client in clients)
    async with asyncio.timeout(5):
        while any(thread.name == "patient" for thread in threading.enumerate()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

"""Following a log: rotations, the end of the container, disconnecting clients."""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import Unavailable
from kubeletpy.server.logs import rotate
from kubeletpy.server.logs.follow import BLOCK, READERS, LogFile, LogStreams, open_next
from kubeletpy.server.logs.records import LogFileEntry, LogOptions, next_entry
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from tests.kit.clocks import SetClock
from tests.kit.costs import open_descriptors

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

    async def read(self, write: Any = None, **options: Any) -> None:
        self.descriptors = open_descriptors()
        log = await self.streams.open(str(self.path), "")
        await self.streams.send(log, "u", "id", LogOptions(**options), write or self.write)

    def close(self) -> None:
        self.file.close()
        self.streams.close()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(5):
            while not self.got.endswith(text.encode()):
                self.changes.clear()
                await self.changes.wait()


@pytest.fixture
async def container(tmp_path: Path) -> AsyncIterator[Container]:
    made = Container(tmp_path / "logs")
    yield made
    made.close()


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


def rotations(folder: Path, *files: str, until: float = 1_767_000_000.0) -> None:
    """Write log files oldest first, the one without a name as the log.

    Each file is ``NAME:LINES``; names ending in .gz are packed. "!" ends a file without a newline.
    """
    for file in files:
        name, _, text = file.partition(":")
        lines = [LINE % each for each in text.split()]
        content = "".join(lines).encode()
        if text.endswith("!"):
            content = content.replace(b"!\n", b"")
        path = folder / (f"0.log.{name}" if name else "0.log")
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        os.utime(path, (until, until + files.index(file) * 1000))


HISTORY = ("20260101-000000.gz:a b c", "20260102-000000.gz:d e", "20260103-000000:f g", ":h i")


@pytest.mark.parametrize(
    ("files", "options", "expected"),
    [
        (HISTORY, {}, "abcdefghi"),
        (HISTORY, {"tail": 1000}, "abcdefghi"),
        (HISTORY, {"tail": 9}, "abcdefghi"),
        (HISTORY, {"tail": 8}, "bcdefghi"),
        (HISTORY, {"tail": 6}, "defghi"),
        (HISTORY, {"tail": 5}, "efghi"),
        (HISTORY, {"tail": 4}, "fghi"),
        (HISTORY, {"tail": 3}, "ghi"),
        (HISTORY, {"tail": 2}, "hi"),
        (HISTORY, {"tail": 0}, ""),
        (HISTORY, {"limit": 7}, "abcd"),
        (HISTORY, {"tail": 5, "limit": 3}, "ef"),
        ((*HISTORY[:3], ":"), {"tail": 1}, "g"),
        ((*HISTORY[:3], ":"), {}, "abcdefg"),
        (("20260103-000000:f g!", ":h i"), {}, "fghi"),
        (("20260103-000000:f g!", ":h i"), {"tail": 3}, "ghi"),
        (("20260103-000000.gz:f g!", ":h i"), {"tail": 3}, "ghi"),
        (("20260103-000000.gz:", ":h"), {"tail": 3}, "h"),
    ],
)
async def test_rotations_are_read_in_order(
    tmp_path: Path, files: tuple[str, ...], options: dict[str, Any], expected: str
) -> None:
    container = Container(tmp_path / "logs")
    rotations(container.path.parent, *files)
    await container.read(**options)
    got = bytes(container.got).decode()
    assert got == "".join(f"{each}\n" for each in expected)[: options.get("limit")]
    assert open_descriptors() == container.descriptors
    container.close()


async def test_a_rotation_while_the_files_are_listed_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = Container(tmp_path / "logs")
    folder = container.path.parent
    rotations(folder, "20260101-000000:x", ":y")
    list_folder = os.listdir

    def rotated(*arguments: Any) -> list[str]:
        names = list_folder(*arguments)
        if not (folder / "0.log.20260102-000000").exists():
            container.path.rename(folder / "0.log.20260102-000000")
            container.path.write_text(LINE % "z")
        return names

    monkeypatch.setattr(os, "listdir", rotated)
    await container.read()
    assert bytes(container.got) == b"x\ny\nz\n"
    container.close()


async def test_rotations_that_end_before_since_are_not_read(tmp_path: Path) -> None:
    container = Container(tmp_path / "logs")
    rotations(container.path.parent, "20260101-000000.gz:x", "20260102-000000:y", ":z")
    (container.path.parent / "0.log.20260101-000000.gz").write_bytes(b"never opened")
    os.utime(container.path.parent / "0.log.20260101-000000.gz", (1, 1))
    await container.read(since=1_767_000_000.0)
    assert bytes(container.got) == b"y\nz\n"
    container.close()


@pytest.mark.parametrize("options", [{}, {"tail": 4}, {"tail": 3}])
async def test_a_damaged_rotation_is_left_out(
    tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    container = Container(tmp_path / "logs")
    rotations(container.path.parent, "20260101-000000.gz:x", "20260102-000000:y", ":z")
    (container.path.parent / "0.log.20260101-000000.gz").write_bytes(b"no gzip file")
    await container.read(**options)
    assert bytes(container.got) == b"y\nz\n"
    assert "can't be read" in caplog.text
    container.close()


async def test_what_is_no_file_is_not_read_as_a_rotation(tmp_path: Path) -> None:
    container = Container(tmp_path / "logs")
    rotations(container.path.parent, ":z")
    secret = tmp_path / "secret"
    secret.write_text(LINE % "secret")
    (container.path.parent / "0.log.20260101-000000").symlink_to(secret)
    (container.path.parent / "0.log.20260102-000000").mkdir()
    os.mkfifo(container.path.parent / "0.log.20260103-000000")
    (container.path.parent / "1.log.20260103-000000").write_text(LINE % "of another container")
    (container.path.parent / "0.log.20260104-000000.gz.tmp").write_text(LINE % "unfinished")
    await container.read()
    assert bytes(container.got) == b"z\n"
    container.close()


@pytest.mark.parametrize("options", [{}, {"tail": 10_000}])
async def test_rotations_while_it_is_read_lose_and_repeat_nothing(
    container: Container, options: dict[str, Any]
) -> None:
    """The log rotates, is compressed and pruned between the blocks that the client takes."""
    clock = type("Now", (), {"now": lambda self: 1_767_000_000.0 + container.observed})()
    rotator = LogRotator(
        container,  # type: ignore[arg-type]
        container.cache,
        str(container.root),
        RotationSettings(max_size=1000, max_files=6),
        clock,
    )
    number = 0

    async def rotate_once() -> None:
        nonlocal number
        container.observed += 1
        container.write_lines(*(f"{number + each:05}" for each in range(50)))
        number += 50
        await rotator.rotate_due()

    for _ in range(3):
        await rotate_once()
    writes = 0

    async def write(data: bytes) -> None:
        nonlocal writes
        container.got += data
        writes += 1
        if writes <= 4:
            await rotate_once()

    await container.read(write, **options)
    lines = [each for each in bytes(container.got).decode().split("\n")[:-1] if each[0] == "0"]
    assert writes > 4
    assert lines == [f"{each:05}" for each in range(len(lines))]
    assert len(lines) == number


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
    # each reading thread may have the directory open just now
    assert open_descriptors() <= before + 201 + READERS, "one watch for all"
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


# Files and links planted beside a log are not followed and never stop its rotation.

LATE = "0.log.99990101-00000"
EARLY = "0.log.20000101-00000"


class Runtime:
    def __init__(self, log: Path) -> None:
        self.log = log
        self.reopened = 0

    async def reopen_container_log(self, container: str) -> None:
        self.reopened += 1
        self.log.write_bytes(b"x" * 2000)


class Cache(dict[str, Any]):
    def status(self, uid: str) -> Any:
        return self[uid]


def _links(name: str) -> Callable[[Path, Path], None]:
    def put(folder: Path, secret: Path) -> None:
        for index in range(4):
            (folder / f"{name}{index}").symlink_to(secret)

    return put


def _folders(name: str) -> Callable[[Path, Path], None]:
    def put(folder: Path, secret: Path) -> None:
        for index in range(4):
            (folder / f"{name}{index}").mkdir()

    return put


def _pipes(folder: Path, secret: Path) -> None:
    for index in range(4):
        os.mkfifo(folder / f"{LATE}{index}")


def _unfinished(folder: Path, secret: Path) -> None:
    (folder / f"{EARLY}0.tmp").mkdir()


def _finished(folder: Path, secret: Path) -> None:
    (folder / f"{LATE}0").write_bytes(b"y")
    (folder / f"{LATE}0.gz").mkdir()


def _sparse(folder: Path, secret: Path) -> None:
    with (folder / f"{LATE}0").open("wb") as file:
        file.truncate(1 << 40)


def _odd_name(folder: Path, secret: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/0.log.\xff\n")).write_bytes(b"y")


@pytest.mark.parametrize(
    "put",
    [
        _links(EARLY),
        _links(LATE),
        _folders(EARLY),
        _folders(LATE),
        _pipes,
        _unfinished,
        _finished,
        _sparse,
        _odd_name,
    ],
)
async def test_a_log_rotates_whatever_lies_beside_it(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    root, secret = tmp_path / "pods", tmp_path / "secret"
    folder = root / "ns_p_u" / "c"
    folder.mkdir(parents=True)
    secret.write_bytes(b"s" * 5000)
    log = folder / "0.log"
    log.write_bytes(b"x" * 2000)
    put(folder, secret)
    runtime = Runtime(log)
    container = SimpleNamespace(id="c", log_path=str(log))
    cache = Cache(u=SimpleNamespace(running_containers=[container]))

    rotator = LogRotator(
        cast(Any, runtime),
        cast(Any, cache),
        str(root),
        RotationSettings(max_size=1000, max_files=3),
        SetClock(1e9, tick=1.0),
    )
    for _ in range(3):
        await rotator.rotate_due()
    assert runtime.reopened == 3
    assert secret.read_bytes() == b"s" * 5000
    rotations = [each for each in folder.iterdir() if each.is_file() and each != log]
    assert len(rotations) <= 4
    assert not any(each.is_symlink() for each in folder.iterdir())


def test_a_rotation_that_grows_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0.log.1").write_bytes(b"y" * 1000)
    folder = os.open(tmp_path, os.O_RDONLY)
    stat = os.fstat

    def smaller(descriptor: int) -> os.stat_result:
        found = list(stat(descriptor))
        found[6] = 10
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", smaller)
    try:
        with pytest.raises(OSError, match="grows"):
            rotate._compress("0.log.1", dir_fd=folder, most=100)
    finally:
        os.close(folder)
    assert (tmp_path / "0.log.1").exists()


# The next file of a log, whichever files have been renamed, compressed or removed.

LOG = "0.log"


def entry(name: str, number: int, modified: int | None = None, size: int = 9) -> LogFileEntry:
    """A file with that inode; its time of modification is the same number by default."""
    return LogFileEntry(name, (1, number), number if modified is None else modified, size)


NOW = entry(LOG, 40)
OLD = [entry(f"{LOG}.1", 10), entry(f"{LOG}.2", 20), entry(f"{LOG}.3", 30)]
PACKED = [entry(f"{LOG}.1.gz", 91, 10), entry(f"{LOG}.2.gz", 92, 20), OLD[2]]


@pytest.mark.parametrize(
    ("entries", "number", "expected"),
    [
        ([NOW], 40, None),
        ([*OLD, NOW], 40, None),
        ([*OLD, NOW], 30, LOG),
        ([*OLD, NOW], 10, f"{LOG}.2"),
        ([NOW, *reversed(OLD)], 20, f"{LOG}.3"),
        (OLD, 30, None),  # the runtime has not opened a new one
        ([*OLD, entry(LOG, 40, size=0)], 30, None),  # nor written to it
        ([*OLD, entry(LOG, 40, size=0)], 20, f"{LOG}.3"),
        ([*PACKED, NOW], 10, f"{LOG}.2.gz"),
        ([*PACKED, NOW], 20, f"{LOG}.3"),
        ([*PACKED, NOW], 91, f"{LOG}.2.gz"),  # a compressed file is being read
        ([*PACKED[1:], NOW], 10, f"{LOG}.2.gz"),  # the one that was read has been removed
        ([*PACKED[2:], NOW], 10, f"{LOG}.3"),
        ([NOW], 10, LOG),
        ([OLD[0], entry(f"{LOG}.1.gz", 91, 99), NOW], 10, LOG),  # the file is being compressed
        ([OLD[0], entry(f"{LOG}.1.tmp", 91, 99), NOW], 10, LOG),
        ([entry(f"{LOG}.3", 30), entry(LOG, 30)], 30, None),  # the file gets its name back
        ([entry("10.log.3", 99), entry("0.logs", 98), OLD[0]], 10, None),
    ],
)
def test_next(entries: list[LogFileEntry], number: int, expected: str | None) -> None:
    found = next_entry(LOG, entries, (1, number), number)
    assert (found and found.name) == expected


def test_a_compressed_file_is_read_in_blocks(tmp_path: Path) -> None:
    text = os.urandom(1000) * 5000 + b"end"
    with gzip.open(tmp_path / "0.log.1.gz", "wb") as file:
        file.write(text)
    log = LogFile(str(tmp_path), str(tmp_path / LOG), "0.log.1.gz")
    pieces = list(iter(log.read, b""))
    log.close()
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= BLOCK


def test_an_invalid_gzip_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0.log.1.gz").write_bytes(b"no such thing")
    log = LogFile(str(tmp_path), str(tmp_path / LOG), "0.log.1.gz")
    with pytest.raises(OSError, match="compressed"):
        log.read()
    log.close()


def test_links_and_folders_are_not_next(tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("old")
    log = LogFile(str(tmp_path), str(tmp_path / LOG))
    (tmp_path / LOG).rename(tmp_path / "0.log.1")
    (tmp_path / "0.log.2").symlink_to("/etc/passwd")
    (tmp_path / "0.log.3").mkdir()
    (tmp_path / LOG).symlink_to("/etc/passwd")
    assert open_next(str(tmp_path), log) is None
    log.close()

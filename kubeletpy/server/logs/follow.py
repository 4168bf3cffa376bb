"""/containerLogs: sends a container's log from its beginning or tail, and follows it while it runs.

The beginning is in the oldest rotation that still exists, compressed or not. Reading goes on
through rotations without loss or repeats, however far behind, as long as the files exist. The
runtime may still flush buffers to the old file after it has begun the new one. So the old file is
read to its end only after the new one has content and the runtime has closed the old one. Must
never hold more than a block, nor read faster than the client does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import stat
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import open_container_log, open_file, open_folder_of
from kubeletpy.base.host.inotify import DirectoryWatches, HeldFd
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_within
from kubeletpy.remote.errors import CRIError
from kubeletpy.server.app import Handler
from kubeletpy.server.logs import records
from kubeletpy.server.logs.records import COMPRESSED
from kubeletpy.server.node_view import NodeView, declared_container

# A container's log file, opened safely and read in blocks from any position.
#
# Any pod that mounts podLogsDir from the host can write there: no symbolic link is followed
# except a runtime's own (:mod:`kubeletpy.base.host.files`), and only regular files are read.
# Blocking: call it on a thread.

BLOCK = 256 << 10
SLICE = 16 * BLOCK
"""Bytes searched for the beginning of a tail before other readers get a turn."""


class LogFile(Component):
    """An open log file. Close it; a thread that still reads closes it when done.

    Compressed files are unpacked on reading. Raises OSError, NotBelow when it is made.
    """

    root: str
    # must be below ``root``.
    path: str
    # the name of a rotation in the same folder, which is opened instead.
    rotation: str = ""
    # of its container; "" if no link may be followed.
    container_id: str = ""

    def __post_init__(self) -> None:
        self.real_path = ""
        """The file of the runtime, if ``path`` is a link to it."""
        if self.rotation:
            fd = open_file(self.root, str(Path(self.path).with_name(self.rotation)))
        else:
            fd, self.real_path = open_container_log(self.root, self.path, self.container_id)
        self._held = HeldFd(fd)
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)
        self._unpacker = _Unpacker() if self.rotation.endswith(COMPRESSED) else None
        self._seeking: Iterator[None] | None = None
        self._unread = b""

    def read(self) -> bytes:
        """Return the next block, or b"" at the present end and after a close. Raises OSError."""
        with self._held.in_use() as fd:
            if fd < 0:
                return b""
            if self._unread:
                unread, self._unread = self._unread, b""
                return unread
            return self._unpacker.read(fd) if self._unpacker else os.read(fd, BLOCK)

    def modified(self) -> int:
        """Return the time of the last write, nanoseconds since 1970; 0 after a close."""
        with self._held.in_use() as fd:
            return os.fstat(fd).st_mtime_ns if fd >= 0 else 0

    def is_written(self) -> bool:
        """Return whether a process has it open for writing, as far as the file system shows.

        The kernel grants a read lease only while none does.
        """
        with self._held.in_use() as fd:
            if fd < 0:
                return False
            try:
                # an open during the lease sends a signal, which does nothing
                fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            except BlockingIOError:
                return True
            except OSError:
                return False
        return False

    def seek_tail(self, search: TailSearch) -> bool:
        """Continue a search, and seek to its result; return whether it is over, or closed."""
        with self._held.in_use() as fd:
            if fd < 0:
                return True
            if self._unpacker is not None:
                self._seeking = self._seeking or self._seek_packed(fd, search)
                return next(self._seeking, self) is self
            if not search.search(fd):
                return False
            os.lseek(fd, search.offset, os.SEEK_SET)
            return True

    def _seek_packed(self, fd: int, search: TailSearch) -> Iterator[None]:
        """Count the lines, then skip all but the last ones; one block at each step."""
        total, last = 0, b"\n"
        unpacker = _Unpacker()
        while block := unpacker.read(fd):
            total, last = total + block.count(b"\n"), block
            yield
        total += not last.endswith(b"\n")
        search.found = min(total, search.lines)
        os.lseek(fd, 0, os.SEEK_SET)
        self._unpacker = unpacker = _Unpacker()
        skipped = total - search.found
        while skipped and (block := unpacker.read(fd)):
            if (here := block.count(b"\n")) >= skipped:
                self._unread, here = block.split(b"\n", skipped)[skipped], skipped
            skipped -= here
            yield

    def is_current(self) -> bool:
        """Return whether it is still the file at its path."""
        try:
            found = Path(self.real_path or self.path).lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def close(self) -> None:
        """Close the file once no thread reads it."""
        self._held.close()


class _Unpacker:
    """Reads a gzip file in blocks; never more than one is unpacked at once."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def read(self, fd: int) -> bytes:
        """Return the next block, or b"" at the end. Raises OSError."""
        while not self._stream.eof:
            packed = self._stream.unconsumed_tail or os.read(fd, BLOCK)
            if not packed:
                break
            try:
                if plain := self._stream.decompress(packed, BLOCK):
                    return plain
            except zlib.error as error:
                raise OSError(f"a compressed log can't be read: {error}") from None
        return b""


class TailSearch(Component):
    """Finds the offset of the last ``lines`` complete lines and the text after the last newline.

    It searches in slices, because a file may be arbitrarily long without a newline.
    """

    lines: int
    # the file gets no more text: what follows its last newline counts as a line.
    rotated: bool = False

    def __post_init__(self) -> None:
        self._end: int | None = None
        self.offset = 0
        self.found = 0
        """Lines found so far, at most ``lines``; fewer at the end: the file has no more."""

    def search(self, fd: int) -> bool:
        """Search SLICE more bytes from the end; return whether ``offset`` is known.

        Raises OSError.
        """
        if self._end is None:
            self._end = os.fstat(fd).st_size
            if self.rotated and self._end and os.pread(fd, 1, self._end - 1) != b"\n":
                self.found = min(1, self.lines)
        stop = max(0, self._end - SLICE)
        while self._end > stop:
            begin = max(0, self._end - BLOCK)
            block = os.pread(fd, self._end - begin, begin)
            here = block.count(b"\n")
            if self.found + here > self.lines:
                at = len(block)
                for _ in range(self.lines + 1 - self.found):
                    at = block.rfind(b"\n", 0, at)
                self.offset, self.found = begin + at + 1, self.lines
                return True
            self.found += here
            self._end = begin
        return self._end == 0


log = logging.getLogger(__name__)

_ATTEMPTS = 8
"""Tries to open a file that may be renamed or compressed between listing and opening."""


def open_next(root: str, log: LogFile) -> LogFile | None:
    """Return the opened file that follows an open one, or None if there is none. Blocking.

    Raises:
        OSError: the directory can't be read, or the file can't be opened.
    """
    if log.is_current():
        return None
    if log.real_path:  # the runtime rotates it itself, and has begun another
        try:
            return LogFile(root, log.path, container_id=log.container_id)
        except FileNotFoundError:
            return None
    for _ in range(_ATTEMPTS):
        try:
            name, entries = _list_entries(root, log)
            found = records.next_entry(name, entries, log.identity, log.modified())
            if found is None:
                return None
            opened = LogFile(root, log.path, found.name)
        except FileNotFoundError:
            continue
        if opened.identity == found.identity:
            return opened
        opened.close()
    return None


def list_earlier(root: str, log: LogFile, since: float | None) -> list[str]:
    """Return the names of the rotations before an open file, oldest first. Blocking.

    A log that the runtime rotates itself has none. Raises OSError.
    """
    if log.real_path:
        return []
    for _ in range(_ATTEMPTS):
        try:
            name, entries = _list_entries(root, log)
        except FileNotFoundError:
            continue
        # a rotation between listing and reading hides the open file: the list is incomplete
        if any(entry.identity == log.identity for entry in entries):
            earlier = records.earlier_entries(name, entries, log.identity, log.modified(), since)
            return [entry.name for entry in earlier]
    return []


def open_rotation(root: str, log: LogFile, name: str) -> LogFile | None:
    """Return a rotation of a log, opened; None if it was removed since it was listed. Blocking.

    Raises OSError.
    """
    for each in dict.fromkeys((name, name.removesuffix(COMPRESSED) + COMPRESSED)):
        with contextlib.suppress(FileNotFoundError):
            return LogFile(root, log.path, each)
    return None


def _list_entries(root: str, log: LogFile) -> tuple[str, list[records.LogFileEntry]]:
    """Return the name of a log and the files of its directory that begin with it."""
    folder, name = open_folder_of(root, log.path)
    try:
        entries = []
        for each in os.listdir(folder):  # noqa: PTH208 - a folder by its descriptor
            if not each.startswith(name):
                continue
            found = os.stat(each, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                identity = (found.st_dev, found.st_ino)
                entries.append(
                    records.LogFileEntry(each, identity, found.st_mtime_ns, found.st_size)
                )
    finally:
        os.close(folder)
    return name, entries


READERS = 4
"""Threads that read logs for clients; separate from those that start pods."""
CHECK_S = 10.0
"""Seconds to wait for a notification about a file before checking it anyway."""
CLOSED_WITHIN_S = 5.0
"""Seconds that a runtime may take to close the old file of a rotation before it is left anyway."""
Write = Callable[[bytes], Awaitable[None]]


class Containers(Protocol):
    """Whether containers run."""

    def subscribe(self, changed: Callable[[str], None], /) -> object:
        """Call a function with the uid of each pod that changes in the runtime."""

    def runs(self, uid: str, container_id: str) -> bool:
        """Return whether a container of a pod runs."""


class PodChanges(Component):
    """Sets events when a pod changes in the runtime."""

    containers: Containers

    def __post_init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.containers.subscribe(self._changed)

    def add(self, uid: str, event: asyncio.Event) -> None:
        """Set an event at each change of a pod."""
        self._waiting.setdefault(uid, set()).add(event)

    def remove(self, uid: str, event: asyncio.Event) -> None:
        """Stop setting the event."""
        events = self._waiting.get(uid, set())
        events.discard(event)
        if not events:
            self._waiting.pop(uid, None)

    def _changed(self, uid: str) -> None:
        for event in self._waiting.get(uid, ()):
            event.set()


class LogStreams(Component):
    """Reads the logs below podLogsDir for all clients."""

    root: str
    containers: Containers

    def __post_init__(self) -> None:
        self._changes = PodChanges(self.containers)
        self._watches = DirectoryWatches()
        self._threads = PatientThreads(READERS)

    def close(self) -> None:
        """Stop watching directories."""
        self._watches.close()

    async def open(self, path: str, container_id: str) -> LogFile:
        """Return a container's current log, opened. Raises OSError."""
        return await self._threads.run(lambda: LogFile(self.root, path, container_id=container_id))

    async def send(
        self, log: LogFile, uid: str, container_id: str, options: records.LogOptions, write: Write
    ) -> None:
        """Send the requested part of ``log`` and close it. Raises OSError, errors of ``write``."""
        reading = _Reading(log, self.root, options, self._threads)
        try:
            await reading.seek_start()
            if options.follow:
                await self._follow(reading, uid, container_id, write)
            else:
                await reading.to_the_end(write)
                while not reading.done and await reading.next_file(write, ended=True):
                    await reading.to_the_end(write)
                await reading.finish(write)
        finally:
            reading.close()

    async def _follow(self, reading: _Reading, uid: str, container_id: str, write: Write) -> None:
        changed = asyncio.Event()
        self._changes.add(uid, changed)
        end_watch = self._watch(reading.path, changed)
        try:
            ended = False
            while True:
                changed.clear()
                await reading.to_the_end(write)
                if reading.done:
                    return
                if await reading.next_file(write, ended=ended):
                    continue
                if ended:
                    await reading.finish(write)
                    return
                ended = not self.containers.runs(uid, container_id)
                if not ended:
                    await wait_within(changed, CHECK_S)
        finally:
            end_watch()
            self._changes.remove(uid, changed)

    def _watch(self, path: str, changed: asyncio.Event) -> Callable[[], None]:
        try:
            return self._watches.watch(Path(path).parent, changed.set)
        except OSError:
            return lambda: None


class _Reading(Component):
    """One client's position in a log."""

    log: LogFile
    root: str
    options: records.LogOptions
    threads: PatientThreads

    def __post_init__(self) -> None:
        self.path = self.log.real_path or self.log.path
        self._left_since: float | None = None
        """When the file was first seen to have a successor, by the event loop's clock."""
        self._formatter = records.Formatter(
            timestamps=self.options.timestamps,
            since=self.options.since,
            limit=self.options.limit,
            records=None if self.options.follow else self.options.tail,
            stream=self.options.stream,
        )

    @property
    def done(self) -> bool:
        """Returns whether nothing more is requested."""
        return self._formatter.done

    async def seek_start(self) -> None:
        """Go to the first requested line, which may be in a rotation. Raises OSError."""
        run, lines = self.threads.run, self.options.tail
        earlier = await run(list_earlier, self.root, self.log, self.options.since)
        if lines is None:
            while earlier and not await self._replace(open_rotation, earlier.pop(0)):
                pass  # it was removed meanwhile
            return
        while True:
            search = TailSearch(lines, rotated=bool(self.log.rotation))
            try:
                while not await run(self.log.seek_tail, search):
                    pass  # a client that disconnects ends it here
            except OSError as error:
                if not self.log.rotation:
                    raise
                self._omit(error)
                await self._replace(open_next)
                return
            lines -= search.found
            if not (lines and earlier and await self._replace(open_rotation, earlier.pop())):
                return

    async def _replace(self, open_other: Callable[..., LogFile | None], *name: str) -> bool:
        """Continue with another file; return False if there is none."""
        if (other := await self.threads.run(open_other, self.root, self.log, *name)) is not None:
            self.log.close()
            self.log = other
        return other is not None

    def _omit(self, error: OSError) -> None:
        about = {"path": self.path, "file": self.log.rotation, "why": str(error)}
        log.warning("an old log file can't be read; the rest of it is left out", extra=about)

    async def to_the_end(self, write: Write) -> None:
        """Send all that the file contains now."""
        while not self.done:
            ended, text = await self.threads.run(self._step)
            if text:
                await write(text)
            if ended:
                return

    async def next_file(self, write: Write, *, ended: bool) -> bool:
        """After a rotation send the rest of the old file, and continue with the one after it.

        ``ended``: the container has ended, and no more changes to its files will be reported.
        """
        new = await self.threads.run(open_next, self.root, self.log)
        if new is None:
            return False
        try:
            if not ended and await self._is_still_written():
                new.close()
                return False
            await self.to_the_end(write)
            await self.finish(write)
        except BaseException:
            new.close()
            raise
        self.log.close()
        self.log = new
        self._left_since = None
        return True

    async def _is_still_written(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._left_since is None:
            self._left_since = now
        if now - self._left_since > CLOSED_WITHIN_S:
            return False
        return await self.threads.run(self.log.is_written)

    async def finish(self, write: Write) -> None:
        """Send a last line that has no newline."""
        if not self.done and (text := self._formatter.finish()):
            await write(text)

    def close(self) -> None:
        """Close the current file."""
        self.log.close()

    def _step(self) -> tuple[bool, bytes]:
        try:
            data = self.log.read()
        except OSError as error:
            if not self.log.rotation:
                raise
            self._omit(error)
            data = b""
        return not data, self._formatter.feed(data) if data else b""


# The handler of /containerLogs/{namespace}/{pod}/{container}.


def handler(
    view: NodeView,
    streams: LogStreams,
    clock: Clock,
    *,
    write_timeout: float,
    split_streams: bool = False,
) -> Handler:
    """Return the handler; it drops clients that read nothing for ``write_timeout`` s (0: never).

    ``split_streams``: stdout or stderr can be requested alone (gate PodLogsQuerySplitStreams).
    """

    async def container_logs(request: web.Request) -> web.StreamResponse:
        try:
            options = records.read_options(request.query, clock.now(), split_streams=split_streams)
        except records.UnreadableOptions as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except records.InvalidOptions as error:
            raise web.HTTPUnprocessableEntity(text=f"{error}\n") from None
        uid, found, opened = await _find(view, streams, request, options)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()

        async def write(data: bytes) -> None:
            async with asyncio.timeout(write_timeout or None):
                await response.write(data)

        try:
            await response.prepare(request)
            await streams.send(opened, uid, found, options, write)
        except (OSError, TimeoutError) as error:
            # the head is sent: breaking the connection is the only way left to report it
            log.debug("a log stream failed", extra={"path": opened.path, "why": str(error)})
            if request.transport is not None:
                request.transport.abort()
        finally:
            opened.close()
        return response

    return container_logs


async def _find(
    view: NodeView, streams: LogStreams, request: web.Request, options: records.LogOptions
) -> tuple[str, str, LogFile]:
    path = request.match_info
    name, container = path["pod"], path["container"]
    pod = view.pod(path["namespace"], name)
    if pod is None:
        raise web.HTTPNotFound(text=f'pod "{name}" does not exist\n')
    if declared_container(pod, container) is None:
        raise web.HTTPNotFound(text=f'container "{container}" not found in pod "{name}"\n')
    try:
        found = records.container_id(name, container, view.status(pod), previous=options.previous)
        log_path = await _log_path(view, pod.uid, found)
        return pod.uid, found, await streams.open(log_path, found)
    except records.NoLog as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    except CRIError as error:
        raise web.HTTPBadRequest(text=f"the log of {container} is not known: {error}") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise web.HTTPBadRequest(
            text=f'the log of container "{container}" can\'t be read: {why}'
        ) from None


async def _log_path(view: NodeView, uid: str, found: str) -> str:
    status = view.cache.status(uid)
    record = status.by_id(found) if status is not None else None
    if record is not None and record.log_path:
        return record.log_path
    answer = await view.runtime.container_status(found)
    return answer.status.log_path

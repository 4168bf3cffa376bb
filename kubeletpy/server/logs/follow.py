"""Sends a log file to a client from its beginning or tail, and follows it while the container runs.

Follows through rotations without loss or repeats, however far behind, as long as the files exist.
The runtime may still flush buffers to the old file after it has begun the new one. So the old file
is read to its end only after the new one has content and the runtime has closed the old one. Must
never hold more than a block, nor read faster than the client does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from kubeletpy.base.host.inotify import DirectoryWatches
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.server.logs.choice import LogOptions
from kubeletpy.server.logs.files import LogFile, TailSearch
from kubeletpy.server.logs.records import Formatter
from kubeletpy.server.logs.succession import open_next

READERS = 4
"""Threads that read logs for clients; separate from those that start pods."""
LOOK_S = 10.0
"""How long to wait for a notification about a file before checking it anyway."""

CLOSED_WITHIN_S = 5.0
"""How long a runtime may take to close the old file of a rotation before it is left anyway."""

Write = Callable[[bytes], Awaitable[None]]


class PodChanges:
    """Wakes those who wait for a pod to change in the runtime."""

    def __init__(self, cache: PodStatusCache) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        cache.subscribe(self._changed)

    def add(self, uid: str, event: asyncio.Event) -> None:
        """Set an event at each change."""
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


class LogStreams:
    """Reads logs below one root."""

    def __init__(self, root: str, cache: PodStatusCache) -> None:
        self._root = root
        self._cache = cache
        self._changes = PodChanges(cache)
        self._watches = DirectoryWatches()
        self._threads = PatientThreads(READERS)

    def close(self) -> None:
        """Stop watching."""
        self._watches.close()

    async def open(self, path: str, container_id: str) -> LogFile:
        """A container's current log. Raises OSError."""
        return await self._threads.run(lambda: LogFile(self._root, path, container_id=container_id))

    async def send(
        self, log: LogFile, uid: str, container_id: str, options: LogOptions, write: Write
    ) -> None:
        """Send what is requested; closes ``log``. Raises OSError, and what ``write`` raises."""
        reading = _Reading(log, self._root, options, self._threads)
        try:
            if options.tail is not None:
                search = TailSearch(options.tail)
                while not await self._threads.run(log.seek_tail, search):
                    pass  # a client that disconnects ends it here
            if options.follow:
                await self._follow(reading, uid, container_id, write)
            else:
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
                ended = not self._runs(uid, container_id)
                if not ended:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await changed.wait()
        finally:
            end_watch()
            self._changes.remove(uid, changed)

    def _watch(self, path: str, changed: asyncio.Event) -> Callable[[], None]:
        try:
            return self._watches.watch(Path(path).parent, changed.set)
        except OSError:
            return lambda: None

    def _runs(self, uid: str, container_id: str) -> bool:
        status = self._cache.status(uid)
        record = status.by_id(container_id) if status is not None else None
        return record is not None and record.running


class _Reading:
    """One client's position in a log."""

    def __init__(
        self, log: LogFile, root: str, options: LogOptions, threads: PatientThreads
    ) -> None:
        self._log = log
        self._threads = threads
        self._root = root
        self.path = log.real_path or log.path
        self._left_since: float | None = None
        """When the file was first seen to have a successor, by the event loop's clock."""
        self._formatter = Formatter(
            timestamps=options.timestamps,
            since=options.since,
            limit=options.limit,
            records=None if options.follow else options.tail,
            stream=options.stream,
        )

    @property
    def done(self) -> bool:
        """Whether nothing more is requested."""
        return self._formatter.done

    async def to_the_end(self, write: Write) -> None:
        """Send everything in the file now."""
        while not self.done:
            ended, text = await self._threads.run(self._step)
            if text:
                await write(text)
            if ended:
                return

    async def next_file(self, write: Write, *, ended: bool) -> bool:
        """After a rotation: send the rest of the old file and go on to the one after it.

        ``ended``: the container has ended, and no more changes to its files will be reported.
        """
        new = await self._threads.run(open_next, self._root, self._log)
        if new is None:
            return False
        try:
            if not ended and await self._is_still_written():
                new.close()
                return False
            await self.to_the_end(write)
        except BaseException:
            new.close()
            raise
        self._log.close()
        self._log = new
        self._left_since = None
        return True

    async def _is_still_written(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self._left_since is None:
            self._left_since = now
        if now - self._left_since > CLOSED_WITHIN_S:
            return False
        return await self._threads.run(self._log.is_written)

    async def finish(self, write: Write) -> None:
        """Send a last line that has no newline."""
        if not self.done and (text := self._formatter.finish()):
            await write(text)

    def close(self) -> None:
        """Release the file."""
        self._log.close()

    def _step(self) -> tuple[bool, bytes]:
        data = self._log.read()
        return not data, self._formatter.feed(data) if data else b""

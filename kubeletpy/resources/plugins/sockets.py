"""The sockets in plugins_registry: found at the start, then watched as they come and go.

The directory is read again after every change and once a minute; the kernel only reports when.
Names with a leading dot, symlinks and anything that is not a socket are skipped. Must never connect
to one. Source: docs/reference/behaviour-storage.md, sm1; docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.host.inotify import DirectoryWatches
from kubeletpy.base.structs import Struct
from kubeletpy.resources.plugins.model import Stamp

log = logging.getLogger(__name__)

MAX_SOCKETS, MAX_DIRECTORIES, MAX_DEPTH = 512, 256, 8
"""Entries beyond this are ignored, which is logged."""
SETTLED_S = 60.0
"""Interval between readings while nothing seems to happen."""
UNWATCHED_S = 1.0
"""The same where the kernel cannot watch; the kubelet's own period."""


class SocketListing(Struct, frozen=True):
    """The contents of the directory."""

    sockets: dict[str, Stamp]
    directories: dict[str, int]
    """Path -> inode."""
    cut: bool = False
    """There are more entries than are read."""


def find_sockets(directory: str) -> SocketListing:
    """Read a directory and its subdirectories. Blocks. Raises OSError: it can't be read."""
    sockets: dict[str, Stamp] = {}
    directories = {directory: os.lstat(directory).st_ino}
    todo, cut = [(directory, 0)], False
    while todo:
        here, depth = todo.pop()
        try:
            entries = os.scandir(here)
        except OSError:
            if here == directory:
                raise
            continue  # removed meanwhile
        with entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISSOCK(found.st_mode) and len(sockets) < MAX_SOCKETS:
                    sockets[entry.path] = (found.st_ino, found.st_mtime_ns)
                elif not stat.S_ISDIR(found.st_mode):
                    cut |= stat.S_ISSOCK(found.st_mode)
                elif len(directories) < MAX_DIRECTORIES and depth < MAX_DEPTH:
                    directories[entry.path] = found.st_ino
                    todo.append((entry.path, depth + 1))
                else:
                    cut = True
    return SocketListing(sockets, directories, cut)


class PluginSockets:
    """Follows a directory until its ``run`` is cancelled."""

    def __init__(self, directory: Path, listener: Callable[[dict[str, Stamp]], None]) -> None:
        """``listener`` is called with all current sockets after each change."""
        self._directory = directory
        self._listener = listener
        self._watches = DirectoryWatches()
        self._ends: dict[tuple[str, int], Callable[[], None]] = {}
        self._changed = asyncio.Event()
        self._reported: dict[str, Stamp] | None = None
        self._problem = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        log.debug("watching for plugins", extra={"directory": str(self._directory)})
        try:
            while True:
                self._changed.clear()
                all_watched = await self._scan()
                try:
                    async with asyncio.timeout(SETTLED_S if all_watched else UNWATCHED_S):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            self._ends.clear()
            self._watches.close()

    async def _scan(self) -> bool:
        """Read, notify, watch; returns whether every directory is watched."""
        while True:
            try:
                seen = await asyncio.to_thread(self._find_sockets)
            except OSError as error:
                self._log_problem(f"{error.strerror}: {error.filename}")
                return False
            self._log_problem("it has more entries than are read" if seen.cut else "")
            new, failed = self._watch(seen.directories)
            if not new:  # anything created before a watch existed is found by the reading after it
                break
        if seen.sockets != self._reported:
            self._reported = seen.sockets
            self._listener(dict(seen.sockets))
        return not failed

    def _find_sockets(self) -> SocketListing:
        self._directory.mkdir(0o750, parents=True, exist_ok=True)
        return find_sockets(str(self._directory))

    def _watch(self, directories: dict[str, int]) -> tuple[bool, bool]:
        """Watch exactly these directories; whether a watch is new, whether one can't be set."""
        wanted = set(directories.items())
        for key in self._ends.keys() - wanted:
            self._ends.pop(key)()
        new = failed = False
        for key in wanted - self._ends.keys():
            try:
                self._ends[key] = self._watches.watch(Path(key[0]), self._changed.set)
                new = True
            except OSError as error:
                failed = True
                log.debug("directory not watched", extra={"path": key[0], "why": str(error)})
        return new, failed

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            extra = {"directory": str(self._directory), "why": problem}
            log.warning("not all plugin sockets are seen", extra=extra)
        self._problem = problem

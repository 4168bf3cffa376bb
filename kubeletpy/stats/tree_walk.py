"""How much a directory tree takes on disk, in bounded steps. Blocking: call it in a thread.

Containers write in these trees and change them while they are walked. So: no link is followed, no
other file system entered, a directory is opened by its name in the one that is open and left by
``..`` only if that is still where it came from; names and entries are bounded, and what is past the
bound makes the numbers lower bounds. A file with several links counts once. Limits are kept by
these numbers, so the bounds are too far out for somebody to hide behind them; what has to be
remembered while walking is bounded closer.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MAX_ENTRIES = 1_000_000
MAX_PENDING = 100_000
"""Directories that wait to be entered, and files with several links that are remembered."""
STOP_EVERY = 1024
"""Entries between two looks at whether to go on."""
_BLOCK = 512
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(slots=True)
class Walked:
    """What was found: bytes, inodes, and whether there was more."""

    used: int = 0
    inodes: int = 0
    at_least: bool = False
    _linked: set[int] = field(default_factory=set)

    def count(self, entry: os.stat_result) -> None:
        """Count one file or directory."""
        if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
            if entry.st_ino in self._linked:
                return
            if len(self._linked) >= MAX_PENDING:
                self.used += entry.st_blocks * _BLOCK // entry.st_nlink
                return
            self._linked.add(entry.st_ino)
        self.used += entry.st_blocks * _BLOCK
        self.inodes += 1


def walk(
    path: str, *, max_entries: int = MAX_ENTRIES, stopped: Callable[[], bool] = lambda: False
) -> Walked | None:
    """What the tree at ``path`` takes; a file counts itself. None when nothing is there.

    ``stopped`` is asked now and then; when it says so the rest is not looked at.
    """
    try:
        top = Path(path).lstat()
    except OSError:
        return None
    found = Walked()
    if not stat.S_ISDIR(top.st_mode):
        found.count(top)
        return found
    try:
        current = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        _Walk(found, top.st_dev, max_entries, stopped).run(current)
    except OSError:  # the tree was changed under our feet: what was counted is there at least
        found.at_least = True
    return found


class _Walk:
    """One walk; holds one open directory at a time."""

    def __init__(
        self, found: Walked, device: int, max_entries: int, stopped: Callable[[], bool]
    ) -> None:
        self._found = found
        self._device = device
        self._left = max_entries
        self._stopped = stopped
        # a level of depth takes some bytes: as many as there are entries must be affordable
        self._inodes = array("Q")
        """Of the directories from the top to the open one."""
        self._waiting = array("L")
        """How many of the pending names are in each of them."""
        self._pending: list[str] = []

    def run(self, current: int) -> None:
        """Walk from an open directory, which is closed in the end. Raises OSError."""
        try:
            self._enter(current)
            while self._inodes:
                if self._left <= 0:
                    self._found.at_least |= bool(self._pending)
                    return
                if not self._waiting[-1]:
                    self._inodes.pop()
                    self._waiting.pop()
                    if self._inodes:
                        current = self._up(current)
                    continue
                self._waiting[-1] -= 1
                try:
                    below = os.open(self._pending.pop(), _OPEN, dir_fd=current)
                except OSError:  # gone, or no directory any more
                    continue
                current = _swap(current, below)
                self._enter(current)
        finally:
            os.close(current)

    def _enter(self, current: int) -> None:
        """Count what is in a directory; what is below it comes later."""
        here = os.fstat(current)
        self._inodes.append(here.st_ino)
        self._waiting.append(0)
        if here.st_dev != self._device:
            return
        self._found.count(here)
        with os.scandir(current) as entries:
            for entry in entries:
                self._left -= 1
                if self._left % STOP_EVERY == 0 and self._stopped():
                    self._left = -1
                if self._left < 0:
                    self._found.at_least = True
                    break
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._remember(entry.name)
                    else:
                        self._found.count(entry.stat(follow_symlinks=False))
                except OSError:
                    continue

    def _remember(self, name: str) -> None:
        if len(self._pending) >= MAX_PENDING:
            self._found.at_least = True
            return
        self._waiting[-1] += 1
        self._pending.append(name)

    def _up(self, current: int) -> int:
        above = os.open("..", _OPEN, dir_fd=current)
        there = os.fstat(above)
        if (there.st_dev, there.st_ino) != (self._device, self._inodes[-1]):
            os.close(above)
            raise OSError("a directory was moved while it was walked")
        return _swap(current, above)


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new

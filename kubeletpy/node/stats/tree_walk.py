"""Measures a directory tree on disk, in bounded steps. Blocking: call it in a thread.

Containers write to these trees and change them during the walk. So no link is followed and no other
file system is entered. A directory is opened by name relative to the open one, and left by ``..``
only if that still leads back to its parent. A file with several links counts once. Limits are
enforced by these numbers, so nothing may hide behind a bound: a walk that ends early states whether
continuing would help (``at_least``) or not (``beyond``).
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.structs import Struct, field

MAX_PENDING_BYTES = 64 << 20
"""Names of directories still to be entered: a quarter of a million of the longest."""
MAX_LINKED = 100_000
"""Files with several links to remember."""
MOVED_AGAIN = 3
"""Walks abandoned because a directory was moved meanwhile, before the tree is declared
uncountable."""
STOP_EVERY = 1024
"""Entries between two checks of whether to continue."""
_BLOCK = 512
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Walked(Struct):
    """The result of a walk: bytes and inodes.

    Attributes:
        at_least: there was more than was counted.
        beyond: and it can't be counted: there are more directories than can be remembered, or they
            keep moving.
    """

    used: int = 0
    inodes: int = 0
    at_least: bool = False
    beyond: bool = False
    _linked: set[int] = field(default_factory=set)

    def count(self, entry: os.stat_result) -> None:
        """Count one file or directory."""
        if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
            if entry.st_ino in self._linked:
                return
            if len(self._linked) >= MAX_LINKED:
                self.used += entry.st_blocks * _BLOCK // entry.st_nlink
                return
            self._linked.add(entry.st_ino)
        self.used += entry.st_blocks * _BLOCK
        self.inodes += 1


class _Moved(Exception):
    """A directory is no longer where it was entered."""


def walk(
    path: str, *, max_entries: int | None = None, stopped: Callable[[], bool] = lambda: False
) -> Walked | None:
    """The size of the tree at ``path``, which may be a file. None when nothing is there.

    Args:
        max_entries: after this many the rest is skipped; None: no limit.
        stopped: checked now and then; once true, the rest is skipped.
    """
    found: Walked | None = None
    for _ in range(MOVED_AGAIN):
        try:
            return _once(path, max_entries, stopped)
        except _Moved as error:
            (found,) = error.args
    if found is not None:
        found.at_least = found.beyond = True
    return found


def _once(path: str, max_entries: int | None, stopped: Callable[[], bool]) -> Walked | None:
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
        _TreeWalk(found, top.st_dev, max_entries, stopped).run(current)
    except OSError:  # the tree changed during the walk: what was counted is a lower bound
        found.at_least = True
    return found


class _TreeWalk:
    """One walk; holds one open directory at a time."""

    def __init__(
        self, found: Walked, device: int, max_entries: int | None, stopped: Callable[[], bool]
    ) -> None:
        self._found = found
        self._device = device
        self._most = max_entries
        self._stopped = stopped
        self._seen = 0
        self._over = False
        # each level of depth takes some bytes: even as many levels as entries must be affordable
        self._inodes = array("Q")
        """The directories from the top to the open one."""
        self._waiting = array("L")
        """The number of pending names in each of them."""
        self._pending = bytearray()
        """Names, each with a NUL after it: a list of strings would take three times as much."""

    def run(self, current: int) -> None:
        """Walk from an open directory, which is closed at the end. Raises OSError, _Moved."""
        try:
            self._enter(current)
            while self._inodes:
                if self._over:
                    return
                if not self._waiting[-1]:
                    self._inodes.pop()
                    self._waiting.pop()
                    if self._inodes:
                        current = self._up(current)
                    continue
                try:
                    below = os.open(self._next(), _OPEN, dir_fd=current)
                except OSError:  # removed, or no longer a directory
                    continue
                current = _swap(current, below)
                self._enter(current)
        finally:
            os.close(current)

    def _enter(self, current: int) -> None:
        """Count the entries of a directory; subdirectories come later."""
        here = os.fstat(current)
        self._inodes.append(here.st_ino)
        self._waiting.append(0)
        if here.st_dev != self._device:
            return
        self._found.count(here)
        with os.scandir(current) as entries:
            for entry in entries:
                if self._is_over():
                    self._found.at_least = self._over = True
                    break
                self._seen += 1
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._remember(entry.name)
                    else:
                        self._found.count(entry.stat(follow_symlinks=False))
                except OSError:
                    continue

    def _is_over(self) -> bool:
        if self._most is not None and self._seen >= self._most:
            return True
        return self._seen % STOP_EVERY == 0 and self._stopped()

    def _remember(self, name: str) -> None:
        if len(self._pending) >= MAX_PENDING_BYTES:
            self._found.at_least = self._found.beyond = True
            return
        self._waiting[-1] += 1
        self._pending += os.fsencode(name) + b"\0"

    def _next(self) -> bytes:
        """Remove and return the name remembered last."""
        self._waiting[-1] -= 1
        begin = self._pending.rfind(b"\0", 0, -1) + 1
        name = bytes(self._pending[begin:-1])
        del self._pending[begin:]
        return name

    def _up(self, current: int) -> int:
        above = os.open("..", _OPEN, dir_fd=current)
        there = os.fstat(above)
        if (there.st_dev, there.st_ino) != (self._device, self._inodes[-1]):
            os.close(above)
            raise _Moved(self._found)
        return _swap(current, above)


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new

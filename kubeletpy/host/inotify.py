"""Tells when something in a directory changes: the kernel's inotify, read by the event loop.

Says only *that* something changed: who is told looks for himself. Needs libc, no library; where
there is no inotify, ``start`` says so and the caller goes on polling.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

_IN_MODIFY = 0x2
_IN_ATTRIB = 0x4
_IN_CLOSE_WRITE = 0x8
_IN_MOVED = 0x40 | 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_SELF_GONE = 0x400 | 0x800
_MASK = (
    _IN_MODIFY | _IN_ATTRIB | _IN_CLOSE_WRITE | _IN_MOVED | _IN_CREATE | _IN_DELETE | _IN_SELF_GONE
)


class DirectoryWatch:
    """Watches one directory (or file) until closed."""

    def __init__(self, path: Path, on_change: Callable[[], None]) -> None:
        self._path = path
        self._on_change = on_change
        self._fd = -1

    @property
    def active(self) -> bool:
        """Whether changes are seen."""
        return self._fd >= 0

    def start(self) -> bool:
        """Begin to watch; False when the path is not there or the kernel can not watch it."""
        if self.active:
            return True
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if fd < 0:
                return False
            if libc.inotify_add_watch(fd, os.fsencode(self._path), _MASK) < 0:
                os.close(fd)
                return False
        except AttributeError:
            return False
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._readable)
        return True

    def close(self) -> None:
        """Stop watching; may be started again."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        try:
            os.read(self._fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            self.close()
        if self.active and not self._path.exists():
            self.close()
        self._on_change()

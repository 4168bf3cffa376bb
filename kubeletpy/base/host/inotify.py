"""Inotify: notices that a directory has changed, and owns descriptors that threads may be reading.

Reports *that* something changed, and which names were deleted, since they may exist again by the
time one checks: for everything else the listener reads the files itself. Needs libc, no library;
without inotify, ``start`` returns False and the caller keeps polling.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeletpy.base.structs import Component

_IN_MODIFY = 0x2
_IN_ATTRIB = 0x4
_IN_CLOSE_WRITE = 0x8
_IN_OPEN = 0x20
_IN_MOVED = 0x40 | 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_SELF_REMOVED = 0x400 | 0x800
_IN_Q_OVERFLOW = 0x4000
_EVENT = struct.Struct("iIII")
_MASK = (
    _IN_MODIFY
    | _IN_ATTRIB
    | _IN_CLOSE_WRITE
    | _IN_MOVED
    | _IN_CREATE
    | _IN_DELETE
    | _IN_SELF_REMOVED
)


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Watch number, mask and file name of each event that was read."""
    offset = 0
    while offset + _EVENT.size <= len(data):
        number, mask, _, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size
        yield number, mask, os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
        offset += length


class DirectoryWatch(Component):
    """Watches one directory (or file) until closed."""

    path: Path
    on_change: Callable[[], None]
    on_deleted: Callable[[str], None] | None = None
    """Gets the name of each file that is deleted, before ``on_change``."""
    opened: bool = False
    """Only report that it is opened."""

    def __post_init__(self) -> None:
        self._mask = _IN_OPEN | _IN_SELF_REMOVED if self.opened else _MASK
        self._fd = -1

    @property
    def active(self) -> bool:
        """Whether changes are being reported."""
        return self._fd >= 0

    def start(self) -> bool:
        """Start watching; False if the path does not exist or the kernel can't watch it."""
        if self.active:
            return True
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if fd < 0:
                return False
            if libc.inotify_add_watch(fd, os.fsencode(self.path), self._mask) < 0:
                os.close(fd)
                return False
        except AttributeError:
            return False
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._readable)
        return True

    def close(self) -> None:
        """Stop watching; it can be started again."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _readable(self) -> None:
        data = b""
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            self.close()
        if self.on_deleted is not None:
            for _, mask, name in _events(data):
                if mask & _IN_DELETE and name:
                    self.on_deleted(name)
        if self.active and not self.path.exists():
            self.close()
        self.on_change()


class DirectoryWatches:
    """Many directories on one inotify instance (a user has few), shared by many watchers.

    Create one per event loop and close it.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._reported: dict[int, dict[object, Callable[[], None]]] = {}

    def watch(self, path: Path, on_change: Callable[[], None]) -> Callable[[], None]:
        """Have ``on_change`` called after changes in a directory; returns a function that ends it.

        Raises:
            OSError: the directory does not exist, or the kernel can't watch it.
        """
        fd = self._open()
        number = self._libc.inotify_add_watch(fd, os.fsencode(path), _MASK)
        if number < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
        key = object()
        self._reported.setdefault(number, {})[key] = on_change

        def end() -> None:
            listeners = self._reported.get(number)
            if listeners is None or listeners.pop(key, None) is None or listeners:
                return
            del self._reported[number]
            if self._fd >= 0:
                self._libc.inotify_rm_watch(self._fd, number)

        return end

    def __len__(self) -> int:
        return len(self._reported)

    def close(self) -> None:
        """Stop all watches and close the descriptor of inotify."""
        self._reported.clear()
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        if self._fd < 0:
            try:
                fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            except AttributeError:
                raise OSError(errno.ENOSYS, "inotify is not available") from None
            if fd < 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            self._fd = fd
            asyncio.get_running_loop().add_reader(fd, self._readable)
        return self._fd

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        reported: set[int] = set()
        for number, mask, _ in _events(data):
            reported |= set(self._reported) if mask & _IN_Q_OVERFLOW else {number}
        for number in reported:
            for on_change in list(self._reported.get(number, {}).values()):
                on_change()


class HeldFd:
    """Owns a descriptor that a thread may be reading while its owner closes it.

    It is closed on request once unused, at the latest when garbage-collected. So its number never
    becomes that of another file during a read; nobody else may close it by number.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._users = 0
        self._open = True

    @contextmanager
    def in_use(self) -> Iterator[int]:
        """The descriptor, open until the block ends; -1 after a close."""
        with self._lock:
            fd = self._fd if self._open else -1
            self._users += 1
        try:
            yield fd
        finally:
            with self._lock:
                self._users -= 1
                self._close_unused()

    def close(self) -> None:
        """Close it as soon as nobody uses it."""
        with self._lock:
            self._open = False
            self._close_unused()

    def __del__(self) -> None:
        self.close()

    def _close_unused(self) -> None:
        if self._fd >= 0 and not self._open and not self._users:
            os.close(self._fd)
            self._fd = -1

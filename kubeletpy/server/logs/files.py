"""A container's log file, opened safely and read in blocks from any position.

Any pod that mounts podLogsDir from the host can write there: no symbolic link is followed except a
runtime's own (:mod:`kubeletpy.base.host.files`), and only regular files are read. Blocking: call
it on a thread.
"""

from __future__ import annotations

import fcntl
import os
import signal
import zlib
from pathlib import Path

from kubeletpy.base.host.files import open_container_log, open_file
from kubeletpy.base.host.inotify import HeldFd
from kubeletpy.server.logs.records import COMPRESSED

BLOCK = 256 << 10
SLICE = 16 * BLOCK
"""Bytes searched for the beginning of a tail before other readers get a turn."""


class LogFile:
    """An open log file. Close it; a thread that still reads closes it when done."""

    def __init__(self, root: str, path: str, rotation: str = "", *, container_id: str = "") -> None:
        """Open ``path``, which must be below ``root``, or a rotation in the same folder.

        ``container_id``: its container; "" if no link may be followed. Compressed files are
        unpacked on reading. Raises OSError, NotBelow.
        """
        self.path = path
        self.container_id = container_id
        self.real_path = ""
        """The file of the runtime, if ``path`` is a link to it."""
        if rotation:
            fd = open_file(root, str(Path(path).with_name(rotation)))
        else:
            fd, self.real_path = open_container_log(root, path, container_id)
        self._held = HeldFd(fd)
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)
        self._unpacker = _Unpacker() if rotation.endswith(COMPRESSED) else None

    def read(self) -> bytes:
        """Return the next block, or b"" at the present end and after a close. Raises OSError."""
        with self._held.in_use() as fd:
            if fd < 0:
                return b""
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
            if not search.search(fd):
                return False
            os.lseek(fd, search.offset, os.SEEK_SET)
            return True

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


class TailSearch:
    """Finds the offset of the last ``lines`` complete lines and the text after the last newline.

    It searches in slices, because a file may be arbitrarily long without a newline.
    """

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._end: int | None = None
        self._seen = 0
        self.offset = 0

    def search(self, fd: int) -> bool:
        """Search SLICE more bytes from the end; return whether ``offset`` is known.

        Raises OSError.
        """
        if self._end is None:
            self._end = os.fstat(fd).st_size
        stop = max(0, self._end - SLICE)
        while self._end > stop:
            begin = max(0, self._end - BLOCK)
            block = os.pread(fd, self._end - begin, begin)
            here = block.count(b"\n")
            if self._seen + here > self._lines:
                at = len(block)
                for _ in range(self._lines + 1 - self._seen):
                    at = block.rfind(b"\n", 0, at)
                self.offset = begin + at + 1
                return True
            self._seen += here
            self._end = begin
        return self._end == 0

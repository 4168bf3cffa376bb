"""A container's log file, opened without being led astray, read in blocks from where one likes.

What is below podLogsDir can be written by whoever mounts it from the host: no symbolic link is
followed there, and nothing but a regular file is read. Blocking: call it on a thread.
"""

from __future__ import annotations

import fcntl
import os
import signal
import zlib
from pathlib import Path

from kubeletpy.host.below import open_file
from kubeletpy.host.held_fd import HeldFd
from kubeletpy.server.logs.rotation_plan import COMPRESSED

BLOCK = 256 << 10
SLICE = 16 * BLOCK
"""Bytes that are looked at for the beginning of a tail before others have their turn."""


class LogFile:
    """One open log file. Close it; a thread that is reading meanwhile closes it when it is done."""

    def __init__(self, root: str, path: str, rotation: str = "") -> None:
        """Open ``path``, which must be below ``root``, or a rotation in the same folder.

        What is compressed reads as what it was. Raises OSError, NotBelow.
        """
        self.path = path
        fd = open_file(root, str(Path(path).with_name(rotation)) if rotation else path)
        self._held = HeldFd(fd)
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)
        self._unpacker = _Unpacker() if rotation.endswith(COMPRESSED) else None

    def read(self) -> bytes:
        """The next block; empty at the end, for now, and after a close. Raises OSError."""
        with self._held.in_use() as fd:
            if fd < 0:
                return b""
            return self._unpacker.read(fd) if self._unpacker else os.read(fd, BLOCK)

    def modified(self) -> int:
        """When it was last written to, nanoseconds since 1970; 0 after a close."""
        with self._held.in_use() as fd:
            return os.fstat(fd).st_mtime_ns if fd >= 0 else 0

    def is_written(self) -> bool:
        """Whether somebody has it open for writing, as far as the file system can tell.

        The kernel grants a lease for reading only while nobody does.
        """
        with self._held.in_use() as fd:
            if fd < 0:
                return False
            try:
                # whoever opens it within the lease notifies us, by a signal that does nothing
                fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            except BlockingIOError:
                return True
            except OSError:
                return False
        return False

    def look_for_tail(self, search: TailSearch) -> bool:
        """Search on for a while, and go there when it is found; whether it is (or closed)."""
        with self._held.in_use() as fd:
            if fd < 0:
                return True
            if not search.look(fd):
                return False
            os.lseek(fd, search.offset, os.SEEK_SET)
            return True

    def is_current(self) -> bool:
        """Whether it is still what is at its path."""
        try:
            found = Path(self.path).lstat()
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def close(self) -> None:
        """Let go of the file."""
        self._held.close()


class _Unpacker:
    """Reads a gzip file in blocks; never more than one is unpacked at once."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def read(self, fd: int) -> bytes:
        """The next block; empty at the end. Raises OSError."""
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
    """Where the last ``lines`` complete lines begin (and what follows the last newline).

    In slices, because a file may be as long as anybody likes without a line in it.
    """

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._end: int | None = None
        self._seen = 0
        self.offset = 0

    def look(self, fd: int) -> bool:
        """Look at SLICE bytes more, from the end; whether ``offset`` is known. Raises OSError."""
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

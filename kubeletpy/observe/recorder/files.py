"""The recording on disk: a few files of lines, of which the oldest gives way. Blocking.

Each file stands alone: it begins with a head, and what its lines refer to is in it. Nothing is
synced: an agent that is killed loses what it had not written, a machine that loses power some more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors

DIRECTORY = "flight-recorder"
"""Below the agent's root directory."""
SUFFIX = ".jsonl"
FILES = 8
"""A file takes such a part of the limit; the oldest file is dropped as one."""
FEWEST_FILES = 3
"""Minimum number of files that fit, however large their heads are."""
HEADS = 4
"""A file is at least so many times as large as its head: with 500 idle pods little but heads would
be written otherwise."""
MOST_FILES = 256
"""Maximum number of files: each start of an agent begins one."""
MAX_LINE = 4 * 1024 * 1024
"""Bytes of the longest line of a recording."""


class RecordingFiles:
    """Writes the newest file of a directory; must be used by one thread at a time."""

    def __init__(self, directory: Path, limit: int) -> None:
        """Write below ``directory``; ``limit``: bytes of all files together."""
        self._directory, self._limit = directory, limit
        self._part = self._part_for(0)
        self._descriptor: int | None = None
        self.size = 0
        """Bytes of the newest file."""

    @property
    def full(self) -> bool:
        """Whether the next lines belong in a new file: there is none yet, or it is large enough."""
        return self._descriptor is None or self.size >= self._part

    def start(self, head: Sequence[bytes]) -> None:
        """Begin a new file with some lines, and drop the oldest ones. Raises OSError."""
        self.close()
        data = _bytes(head)
        self._part = self._part_for(len(data))
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = recordings(self._directory)
        sizes = [path.stat().st_size for path in files]
        remaining = list(accumulate(reversed(sizes)))[::-1]
        for index, (old, left) in enumerate(zip(files, remaining, strict=True)):
            # by bytes: an agent that ends again and again makes many small ones
            if left > self._limit - self._part or len(files) - index >= MOST_FILES:
                old.unlink()
        number = int(files[-1].stem) + 1 if files else 1
        path = self._directory / f"{number:08d}{SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self.size = 0
        try:
            with complete_errors(path):
                self._append(data)
        except OSError:
            path.unlink(missing_ok=True)  # each try would leave one, and drop one that is good
            raise

    def write(self, lines: Iterable[bytes]) -> None:
        """Append lines.

        Raises:
            OSError: they are not in the file, or in part; later lines belong in a new one.
        """
        if self._descriptor is not None:
            with complete_errors(self._directory):
                self._append(_bytes(lines))

    def _append(self, data: bytes) -> None:
        assert self._descriptor is not None
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            self.close()
            raise
        self.size += len(data)

    def _part_for(self, head: int) -> int:
        """Return the bytes of a file with a head of so many bytes."""
        largest = self._limit // FEWEST_FILES
        return max(self._limit // FILES, min(head * HEADS, largest), 1)

    def close(self) -> None:
        """Close the newest file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _bytes(lines: Iterable[bytes]) -> bytes:
    return b"".join(b"%b\n" % line for line in lines)


def recordings(directory: Path) -> list[Path]:
    """Return the files of a directory, oldest first. Raises OSError."""
    found = [path for path in directory.glob(f"*{SUFFIX}") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem))


def since(files: Sequence[Path], begin: float) -> list[Path]:
    """Return those of the files (oldest first) with anything after ``begin``, in Unix seconds.

    Raises OSError.
    """
    found = list(files)
    while len(found) > 1 and found[0].stat().st_mtime < begin:
        del found[0]
    return found


def read_lines(paths: Iterable[Path]) -> Iterator[bytes]:
    """Yield all lines of some files. The last one of a file may be cut off. Raises OSError."""
    for path in paths:
        with path.open("rb") as opened:
            while line := opened.readline(MAX_LINE):
                yield line

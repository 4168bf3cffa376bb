"""A file descriptor that a thread may be reading while its owner closes it.

Closing waits for the readers, so that a descriptor number is never reused for another file during
a read. Must never be closed by its number elsewhere.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class HeldFd:
    """Owns a descriptor; closed on request once unused, at the latest when garbage-collected."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._users = 0
        self._wanted = True

    @contextmanager
    def in_use(self) -> Iterator[int]:
        """The descriptor, open until the block ends; -1 after a close."""
        with self._lock:
            fd = self._fd if self._wanted else -1
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
            self._wanted = False
            self._close_unused()

    def __del__(self) -> None:
        self.close()

    def _close_unused(self) -> None:
        if self._fd >= 0 and not self._wanted and not self._users:
            os.close(self._fd)
            self._fd = -1

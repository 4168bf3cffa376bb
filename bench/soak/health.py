"""Healthy time: seconds without a fault in progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Health:
    """Counts the time without faults, which may overlap."""

    def __init__(self) -> None:
        self._faults = 0
        self._sum = 0.0
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Total healthy seconds so far."""
        running = 0.0 if self._faults else time.monotonic() - self._since
        return self._sum + running

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Mark a fault until the end of the block."""
        self._sum = self.seconds
        self._faults += 1
        try:
            yield
        finally:
            self._faults -= 1
            self._since = time.monotonic()

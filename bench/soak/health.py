"""How long everything has been in order: seconds without a fault in progress."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Health:
    """Faults may overlap; time counts while there are none."""

    def __init__(self) -> None:
        self._faults = 0
        self._sum = 0.0
        self._since = time.monotonic()

    @property
    def seconds(self) -> float:
        """Total seconds in order so far."""
        running = 0.0 if self._faults else time.monotonic() - self._since
        return self._sum + running

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Something is out of order until the end of the block."""
        self._sum = self.seconds
        self._faults += 1
        try:
            yield
        finally:
            self._faults -= 1
            self._since = time.monotonic()

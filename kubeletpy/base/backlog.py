"""Pods that wait for their turn to start or stop, and work that waits until there are none.

In a burst every core is busy, and a pod's start waits for whatever else is done. Work that nobody
waits for is done afterwards, or after a bounded time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Backlog:
    """Counts pods that wait for their turn."""

    def __init__(self) -> None:
        self._waiting = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A pod waits for its turn while the block runs."""
        self._waiting += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._empty.set()

    def __bool__(self) -> bool:
        """Whether a pod waits for its turn."""
        return self._waiting > 0

    async def cleared(self, at_most: float) -> None:
        """Wait until no pod waits for its turn, but at most ``at_most`` seconds."""
        if self and at_most > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(at_most):
                    await self._empty.wait()

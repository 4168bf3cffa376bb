"""CPU time of each turn of the event loop, independent of the machine's other load."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Attributes: ``longest``: CPU seconds of the longest turn; ``count``: turns so far."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0
        self._at = time.thread_time()
        self._next: asyncio.Handle | None = None

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._at)
        self._at = now
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _end(self) -> None:
        if self._next is not None:
            self._next.cancel()


@contextmanager
def turns_measured() -> Iterator[Turns]:
    """Measure the turns of the running loop, without those of the garbage collector.

    The loop never waits meanwhile: a turn begins as soon as the last one has ended.
    """
    gc.collect()
    gc.disable()
    turns = Turns()
    turns._turn()
    try:
        yield turns
    finally:
        turns._end()
        gc.enable()

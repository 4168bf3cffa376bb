"""Turns of the event loop, and the events in each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class PerTurn:
    """Counts events in each turn of the loop."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        """Number of events in each turn with events."""
        self._now = 0
        self._ends: asyncio.Handle | None = None

    @property
    def most(self) -> int:
        """Most events in one turn."""
        return max([self._now, *self.turns])

    @property
    def total(self) -> int:
        """Events so far."""
        return self._now + sum(self.turns)

    def count(self) -> None:
        """Count an event."""
        self._now += 1

    def _turn(self) -> None:
        if self._now:
            self.turns.append(self._now)
            self._now = 0
        self._ends = asyncio.get_running_loop().call_soon(self._turn)


@contextmanager
def events_per_turn() -> Iterator[PerTurn]:
    """Counts while in the block."""
    counted = PerTurn()
    counted._turn()
    try:
        yield counted
    finally:
        if counted._ends is not None:
            counted._ends.cancel()

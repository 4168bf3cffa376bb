"""Clocks that a test moves; the clock of virtual time is in virtual_time."""

from __future__ import annotations

START = 1_700_000_000.0


class SetClock:
    """A clock that changes only when a test sets it, or by ``tick`` seconds with each reading."""

    def __init__(self, now: float = START, *, tick: float = 0.0) -> None:
        self.time = now
        self._tick = tick

    def now(self) -> float:
        self.time += self._tick
        return self.time

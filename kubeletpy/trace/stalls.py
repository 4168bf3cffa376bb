"""How long the event loop is held at a time, and by what. Pure: a watcher asks and passes the time.

A turn of the loop is what runs between two waits for events: one callback, or some in a row. While
a turn lasts nothing else is answered.
"""

from __future__ import annotations

from dataclasses import dataclass

LONG_S = 0.25
"""A turn this long is reported: health answers come late."""
MAX_FRAMES = 12
"""Innermost frames that name a culprit."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A turn that took too long."""

    seconds: float
    stack: tuple[str, ...]
    """Where it was when it was looked at, innermost frame last; empty: nobody looked in time."""


class TurnLog:
    """Takes the beginnings and ends of turns; keeps the longest and the latest stalls.

    Attributes:
        longest: seconds, since :meth:`take_longest` was asked last.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.turn = 0
        """Number of the turn under way."""
        self._begun: float | None = None
        self._seen: tuple[int, tuple[str, ...]] = (0, ())
        self._stall: Stall | None = None

    def begin(self, now: float) -> None:
        """The loop has been woken."""
        self._begun = now

    def end(self, now: float) -> None:
        """The loop is about to wait."""
        if self._begun is None:
            return
        seconds, self._begun = now - self._begun, None
        self.longest = max(self.longest, seconds)
        if seconds >= LONG_S:
            number, stack = self._seen
            self._stall = Stall(seconds, stack if number == self.turn else ())
        self.turn += 1

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return self._begun is not None

    def seen(self, turn: int, stack: tuple[str, ...]) -> None:
        """Where a turn was when it was looked at."""
        self._seen = (turn, stack)

    def take_stall(self) -> Stall | None:
        """The latest stall, reported once."""
        stall, self._stall = self._stall, None
        return stall

    def take_longest(self) -> float:
        """Seconds of the longest turn since the last time this was asked."""
        longest, self.longest = self.longest, 0.0
        return longest

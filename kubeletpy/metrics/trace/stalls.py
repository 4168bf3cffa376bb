"""How long the event loop is blocked, and by what. Pure: a watcher passes the time.

A turn of the loop is what runs between two waits for events: one callback, or several in a row.
During a turn nothing else is served. It stands apart from :mod:`.watched_loop` to be pure.
"""

from __future__ import annotations

from kubeletpy.base.structs import Struct

LONG_S = 0.25
"""A turn this long is reported: health checks are answered late."""
MAX_FRAMES = 12
"""Innermost frames that are reported to identify a culprit."""
LOGGED_S = 60.0
"""Seconds between two lines of the log: on a busy machine there may be many stalls."""


class LoopStall(Struct, frozen=True):
    """A turn that took too long."""

    seconds: float
    stack: tuple[str, ...]
    """Where it was when sampled, innermost frame last; empty: it was not sampled in time."""


class TurnLog:
    """Takes the beginnings and ends of turns; keeps the longest turn and the latest stall.

    Attributes:
        longest: seconds, since the last call of :meth:`take_longest`.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.turn = 0
        """Number of the current turn."""
        self._begun: float | None = None
        self._seen: dict[int, tuple[str, ...]] = {}
        """Where a turn was, by its number: the one that was sampled last."""
        self._stall: LoopStall | None = None

    def begin(self, now: float) -> None:
        """The loop has woken up."""
        self._begun = now

    def end(self, now: float) -> None:
        """The loop is about to wait."""
        if self._begun is None:
            return
        seconds, self._begun = now - self._begun, None
        self.longest = max(self.longest, seconds)
        if seconds >= LONG_S:
            self._stall = LoopStall(seconds, self._seen.get(self.turn, ()))
        self.turn += 1

    @property
    def busy(self) -> bool:
        """Whether a turn is in progress."""
        return self._begun is not None

    def record_stack(self, turn: int, stack: tuple[str, ...]) -> None:
        """Record where a turn was when sampled."""
        self._seen = {turn: stack}

    def take_stall(self) -> LoopStall | None:
        """The latest stall, reported once."""
        stall, self._stall = self._stall, None
        return stall

    def take_longest(self) -> float:
        """Seconds of the longest turn since the last call."""
        longest, self.longest = self.longest, 0.0
        return longest


class StallLines:
    """Decides which stalls get a line in the log: at most one in LOGGED_S."""

    def __init__(self) -> None:
        self._logged_at = float("-inf")
        self._without = 0

    def add(self, now: float) -> int | None:
        """Note a stall; returns how many had no line since the last one, or None: nor has this."""
        if now - self._logged_at < LOGGED_S:
            self._without += 1
            return None
        without, self._without, self._logged_at = self._without, 0, now
        return without


class Waits:
    """How long a turn waited for a processor, from readings of what a thread has waited in all.

    A reading is made at each check, so the time from the check before the turn is counted with it:
    on a machine without free processors a stall may go without a line, and none is blamed on code
    that had no processor.
    """

    def __init__(self, total: float) -> None:
        self._before_turn = self._last = total
        self._turn: int | None = None

    def during_turn(self, total: float, turn: int | None) -> float:
        """Seconds waited in the turn that ended last; ``turn`` is the current one, if any."""
        waited = total - self._before_turn
        if turn is None:
            self._before_turn = total
        elif turn != self._turn:
            self._before_turn = self._last
        self._turn, self._last = turn, total
        return waited

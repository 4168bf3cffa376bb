"""Faults of a simulation, drawn by its seed.

A call can be slow, fail before it had any effect, fail although it had its effect, or hang until
its deadline. Must never draw from the random source while nothing is to go wrong, so that a quiet
scenario stays quiet.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from enum import StrEnum

_READS = re.compile(r"(get|list|watch) |(Node)?(Get|List)|\w*Status\b|Version|ImageFsInfo|uses of")


def changes(what: str) -> bool:
    """Whether a call may change something.

    An agent that dies at a call that only reads leaves what the change before has left. Files that
    it has written since are there, too, if it dies as the next change begins.
    """
    return _READS.match(what) is None


def with_events(instant: int) -> bool:
    """Whether the runtime of a story has events: every other call, as it begins and as it ends."""
    return (instant + 1) // 2 % 2 == 1


class FaultKind(StrEnum):
    """How a call goes wrong."""

    SLOW = "slow"
    BEFORE = "fails, no effect"
    AFTER = "fails after its effect"
    HANG = "hangs, no effect"
    HANG_DONE = "hangs after its effect"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong with one call."""

    kind: FaultKind
    seconds: float = 0.0


@dataclass(slots=True)
class FaultRates:
    """Shares of calls that go wrong."""

    slow: float = 0.0
    before: float = 0.0
    after: float = 0.0
    hang: float = 0.0

    @property
    def any(self) -> bool:
        """Whether anything can go wrong."""
        return bool(self.slow or self.before or self.after or self.hang)


class Faults:
    """Draws faults of one kind of calls."""

    def __init__(self, rng: random.Random, rates: FaultRates | None = None) -> None:
        self._rng = rng
        self.rates = rates or FaultRates()
        self.slowest = 15.0
        """Seconds."""

    def heal(self) -> None:
        """End all faults."""
        self.rates = FaultRates()

    def draw(self) -> Fault | None:
        """Draw the fault of the next call, if any."""
        rates = self.rates
        if not rates.any:
            return None
        point = self._rng.random()
        for share, kind in (
            (rates.slow, FaultKind.SLOW),
            (rates.before, FaultKind.BEFORE),
            (rates.after, FaultKind.AFTER),
            (rates.hang / 2, FaultKind.HANG),
            (rates.hang / 2, FaultKind.HANG_DONE),
        ):
            if point < share:
                seconds = self.slowest * self._rng.random() ** 3 if kind is FaultKind.SLOW else 0.0
                return Fault(kind, seconds)
            point -= share
        return None


def random_rates(rng: random.Random, harshness: float) -> FaultRates:
    """Rates of a random history; ``harshness`` is the most of each kind."""
    return FaultRates(
        slow=rng.uniform(0, harshness),
        before=rng.uniform(0, harshness),
        after=rng.uniform(0, harshness),
        hang=rng.uniform(0, harshness / 20) if rng.random() < 0.3 else 0.0,
    )

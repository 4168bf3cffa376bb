"""Statistics of a fleet's requests to its API server, per phase: means, peaks, shares. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Row = tuple[int, str, str, int, int]
"""Second, verb, resource, code (0: never reached the server), requests."""
REFUSED = (0,)


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a run: from a second to the one after its last."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests per second.

    Attributes:
        mean: over the phase.
        peak: of its busiest second.
        peak_at: that second, counted from the phase's start.
        total: requests.
    """

    mean: float
    peak: int
    peak_at: int
    total: int


def per_second(rows: Iterable[Row], phase: Phase, *, arrived: bool = True) -> list[int]:
    """Requests of each second of a phase: those that arrived, or attempts that did not."""
    found = [0] * (phase.end - phase.start)
    for second, _, _, code, number in rows:
        if phase.start <= second < phase.end and (code not in REFUSED) is arrived:
            found[second - phase.start] += number
    return found


def rates(seconds: Sequence[int]) -> Rates:
    """Mean and peak of a series of seconds, which must not be empty."""
    peak = max(seconds)
    return Rates(sum(seconds) / len(seconds), peak, seconds.index(peak), sum(seconds))


def by_kind(rows: Iterable[Row], phase: Phase) -> dict[tuple[str, str], Rates]:
    """Rates of each verb and resource that arrived, most requests first."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if phase.start <= row[0] < phase.end and row[3] not in REFUSED:
            kinds.setdefault((row[1], row[2]), []).append(row)
    found = {kind: rates(per_second(each, phase)) for kind, each in kinds.items()}
    return dict(sorted(found.items(), key=lambda pair: -pair[1].total))


def codes(rows: Iterable[Row], phase: Phase) -> Counter[int]:
    """Requests of a phase by code."""
    found: Counter[int] = Counter()
    for second, _, _, code, number in rows:
        if phase.start <= second < phase.end:
            found[code] += number
    return found


def lockstep(renewals: Mapping[str, Sequence[float]], start: float, end: float) -> float:
    """The largest share of nodes whose leases were renewed within one second of a time.

    Counted from ``start`` to ``end``; 1.0 means that all renew in the same second.
    """
    beats: Counter[int] = Counter()
    for times in renewals.values():
        beats.update({int(at) for at in times if start <= at < end})
    return max(beats.values(), default=0) / max(len(renewals), 1)

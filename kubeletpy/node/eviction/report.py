"""The part of ``kubeletpy explain`` about a node under pressure, as plain data. Pure.

Causes and remedies are members with their numbers; they become words where they are shown. Times
are Unix seconds; numbers are bytes, inodes or tasks, like the signal's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.node.eviction.decide import Crossing, EvictionState
from kubeletpy.node.eviction.ranking import Ranked, Reclaim, first_to_go
from kubeletpy.node.eviction.signals import (
    Condition,
    Doubt,
    Signal,
    SignalObservation,
    condition_of,
)
from kubeletpy.node.eviction.thresholds import Rules, Threshold

SHOWN = 5
"""How many pods of a ranking are kept."""


class EvictionRecord(Struct, frozen=True):
    """Something that was done about a crossing.

    Attributes:
        ranking: the first pods in eviction order; empty where no pod had to be evicted.
        pod: the one that was evicted.
        reclaimed: what the node cleared away itself; ``helped``: that was enough.
    """

    at: float
    crossing: Crossing
    ranking: tuple[Ranked, ...] = ()
    pod: Ranked | None = None
    reclaimed: tuple[Reclaim, ...] = ()
    helped: bool = False


class EvictionOutcome(StrEnum):
    """The result of acting on a crossing."""

    EVICTED = "evicted"
    RECLAIMED = "reclaimed"
    RECLAIM_NOT_ENOUGH = "reclaim not enough"


class Remedy(StrEnum):
    """A remedy for the node's pressure."""

    FREE_MEMORY = "free memory"
    FREE_SPACE = "free space"
    REMOVE_FILES = "remove files"
    END_PROCESSES = "end processes"
    WAIT = "wait"
    """There is enough; the condition is held until its transition period is over."""


_REMEDIES = {Condition.MEMORY: Remedy.FREE_MEMORY, Condition.PID: Remedy.END_PROCESSES}


class RankingEntry(Struct, frozen=True):
    """A pod's place in a ranking, and what put it there."""

    namespace: str
    name: str
    uid: str
    priority: int
    critical: bool
    """It stays, whatever its place."""
    used: int | None
    """None: not known, which ranks first."""
    request: int
    over: bool
    """It uses more than it requested."""


class EvictionReport(Struct, frozen=True):
    """The response to a crossed threshold, with the numbers of that moment."""

    at: float
    outcome: EvictionOutcome
    signal: Signal
    threshold: int
    available: int
    capacity: int
    grace: float
    """Seconds; 0 for a hard threshold."""
    since: float
    """When the threshold was crossed."""
    reclaimed: tuple[Reclaim, ...]
    pod: RankingEntry | None
    ranking: tuple[RankingEntry, ...]
    """The first of the ranking, including the pod that was evicted."""
    next: RankingEntry | None
    """The pod that would have been evicted next, as of then."""


class HeldCondition(Struct, frozen=True):
    """A condition that the node reports."""

    condition: Condition
    since: float
    ends_at: float | None
    """None: the node is still under that pressure."""


class Level(Struct, frozen=True):
    """A threshold, and what is left of its signal."""

    signal: Signal
    field: str
    threshold: int
    grace: float
    available: int
    capacity: int
    crossed_since: float | None


class Help(Struct, frozen=True):
    """A remedy, and how much of it."""

    remedy: Remedy
    signal: Signal | None
    amount: int
    """Bytes, files or processes; 0 where all that helps is to wait."""


class PressureReport(Struct, frozen=True):
    """Everything about the pressure on a node."""

    at: float
    conditions: tuple[HeldCondition, ...]
    levels: tuple[Level, ...]
    doubts: tuple[tuple[Signal, Doubt], ...]
    """Implausible numbers that are ignored, and why."""
    evictions: tuple[EvictionReport, ...]
    """Oldest first."""
    helps: tuple[Help, ...]


def report(
    rules: Rules,
    state: EvictionState,
    doubts: Mapping[Signal, Doubt],
    done: Iterable[EvictionRecord],
    *,
    now: float,
    wall: float,
) -> PressureReport:
    """Report the state of a keeper.

    Args:
        now: event-loop seconds; ``wall``: the same moment in Unix seconds.
    """
    offset = wall - now
    seen = {condition_of(threshold.signal) for threshold in state.first_seen}
    held = tuple(
        HeldCondition(
            each,
            state.since[each] + offset,
            None if each in seen else state.pressed[each] + rules.transition + offset,
        )
        for each in state.conditions
    )
    levels = tuple(
        _level(threshold, state.last[threshold.signal], state, offset)
        for threshold in rules.thresholds
        if threshold.signal in state.last
    )
    return PressureReport(
        at=wall,
        conditions=held,
        levels=levels,
        doubts=tuple(doubts.items()),
        evictions=tuple(_eviction_report(each, offset) for each in done),
        helps=tuple(_helps(rules, state, held)),
    )


def _level(
    threshold: Threshold, seen: SignalObservation, state: EvictionState, offset: float
) -> Level:
    since = state.first_seen.get(threshold)
    return Level(
        threshold.signal,
        f"{threshold.at}.{threshold.signal}",
        threshold.amount.in_units(seen.capacity),
        threshold.grace,
        seen.available,
        seen.capacity,
        None if since is None else since + offset,
    )


def _helps(rules: Rules, state: EvictionState, held: tuple[HeldCondition, ...]) -> Iterable[Help]:
    missing: dict[Signal, int] = {}
    for threshold in rules.thresholds:
        seen = state.last.get(threshold.signal)
        if threshold in state.first_seen and seen is not None:
            signal = threshold.signal
            missing[signal] = max(threshold.missing(seen), missing.get(signal, 0))
    for signal, amount in missing.items():
        remedy = _REMEDIES.get(condition_of(signal), Remedy.FREE_SPACE)
        if signal.endswith("inodesFree"):
            remedy = Remedy.REMOVE_FILES
        yield Help(remedy, signal, amount)
    if not missing and held:
        yield Help(Remedy.WAIT, None, 0)


def _eviction_report(done: EvictionRecord, offset: float) -> EvictionReport:
    crossing = done.crossing
    outcome = EvictionOutcome.EVICTED
    if done.pod is None:
        outcome = EvictionOutcome.RECLAIMED if done.helped else EvictionOutcome.RECLAIM_NOT_ENOUGH
    rest = [each for each in done.ranking if each is not done.pod]
    after = first_to_go(rest) if done.pod is not None else None
    return EvictionReport(
        at=done.at,
        outcome=outcome,
        signal=crossing.threshold.signal,
        threshold=crossing.quantity,
        available=crossing.seen.available,
        capacity=crossing.seen.capacity,
        grace=crossing.threshold.grace,
        since=crossing.since + offset,
        reclaimed=done.reclaimed,
        pod=None if done.pod is None else place_of(done.pod),
        ranking=tuple(place_of(each) for each in done.ranking),
        next=None if after is None else place_of(after),
    )


def place_of(ranked: Ranked) -> RankingEntry:
    """The entry for a pod in a ranking, as explain shows it."""
    namespace, _, name = ranked.pod.key.rpartition("/")
    return RankingEntry(
        namespace,
        name,
        ranked.pod.uid,
        ranked.pod.priority,
        ranked.pod.critical,
        ranked.used,
        ranked.request,
        ranked.over,
    )

"""Decides what a node under pressure does next, and which conditions it reports. Pure.

Time is an argument. Source: docs/reference/behaviour-resources.md, rc. A threshold
counts only when two consecutive observations found it crossed: a single outlier evicts nothing.
Pods that exceed a limit of their own are evicted first, and no pod is evicted for the disk before
they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.node.eviction.local_storage import Offender
from kubeletpy.node.eviction.signals import (
    Condition,
    Observations,
    Signal,
    SignalObservation,
    condition_of,
)
from kubeletpy.node.eviction.thresholds import Rules, Threshold


class EvictionState(Struct, frozen=True):
    """State carried from one observation to the next. Times are event-loop seconds.

    Attributes:
        suspected: thresholds that the last observation found crossed.
        first_seen: since when each threshold has been crossed.
        ready: those whose grace period was over: they count until the minimum is reclaimed.
        last: the last observation.
        pressed: when a condition was last seen; ``since``: when it was first reported.
    """

    suspected: frozenset[Threshold] = frozenset()
    first_seen: Mapping[Threshold, float] = field(default_factory=dict)
    ready: frozenset[Threshold] = frozenset()
    last: Observations = field(default_factory=dict)
    pressed: Mapping[Condition, float] = field(default_factory=dict)
    since: Mapping[Condition, float] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that are reported, in their order."""
        return tuple(each for each in Condition if each in self.since)


class Crossing(Struct, frozen=True):
    """A threshold to act on, and what was seen."""

    threshold: Threshold
    seen: SignalObservation
    since: float

    @property
    def quantity(self) -> int:
        """The threshold in bytes, inodes or tasks."""
        return self.threshold.amount.in_units(self.seen.capacity)


class EvictionDecision(Struct, frozen=True):
    """The outcome of one observation.

    Attributes:
        state: for the next one.
        over: pods that go now because they exceed a limit of their own.
        act: the threshold to act on; None: there is none.
        all: crossed thresholds with their grace periods over and their numbers new; the one to
            act on comes first.
        held: likewise, but they wait for the pods that exceed a limit of their own.
        unsure: a threshold is crossed for the first time: check again at once.
    """

    state: EvictionState
    over: tuple[Offender, ...] = ()
    act: Crossing | None = None
    all: tuple[Crossing, ...] = ()
    held: tuple[Crossing, ...] = ()
    unsure: bool = False


def decide(
    seen: Observations,
    rules: Rules,
    state: EvictionState,
    now: float,
    *,
    over: Sequence[Offender] = (),
    at_once: int,
) -> EvictionDecision:
    """Actions that follow from an observation.

    Args:
        seen: the plausible observations; a missing signal crosses no threshold.
        rules: the node's.
        state: what the last decision left.
        now: event-loop seconds.
        over: pods that exceed a limit of their own and are not ending yet.
        at_once: how many of them may go now.
    """
    met = frozenset(t for t in rules.thresholds if t.signal in seen and t.met(seen[t.signal]))
    sure = met & state.suspected | {
        t for t in state.ready if t.signal in seen and t.unresolved(seen[t.signal])
    }
    first_seen = {t: state.first_seen.get(t, now) for t in rules.thresholds if t in sure}
    pressed = dict(state.pressed) | {condition_of(t.signal): now for t in first_seen}
    reported = [c for c, last in pressed.items() if now - last < rules.transition]
    ready = {t: since for t, since in first_seen.items() if now - since >= t.grace}
    crossings = tuple(
        Crossing(t, seen[t.signal], since)
        for t, since in ready.items()  # in the order of the rules
        if seen[t.signal].at > state.last[t.signal].at  # one observation is not enough
    )
    new_state = EvictionState(
        suspected=met,
        first_seen=first_seen,
        ready=frozenset(ready),
        last=seen,
        pressed={c: last for c, last in pressed.items() if c in reported},
        since={c: state.since.get(c, now) for c in reported},
    )
    held = tuple(
        each for each in crossings if over and condition_of(each.threshold.signal) is Condition.DISK
    )
    free = tuple(each for each in crossings if each not in held)
    return EvictionDecision(
        new_state,
        over=tuple(over[: max(0, at_once)]),
        act=free[0] if free else None,
        all=free,
        held=held,
        unsure=bool(met - sure),
    )


def restored(state: EvictionState, shown: Collection[Condition], now: float) -> EvictionState:
    """Add the conditions that an earlier run of the agent reported.

    They are held as if seen now: restarting its agent does not make a node well.
    """
    new = [condition for condition in shown if condition not in state.pressed]
    return replace(
        state,
        pressed={**state.pressed, **dict.fromkeys(new, now)},
        since={**state.since, **dict.fromkeys(new, now)},
    )


def is_well(seen: Observations, rules: Rules, acted: Signal) -> bool:
    """Whether no threshold is crossed, counting the minimum reclaim and ignoring grace periods.

    Source: docs/reference/behaviour-resources.md, rc. ``acted`` is the signal for which
    something was reclaimed: while it is not seen, the node is not known to be well.
    """
    return acted in seen and not any(
        t.unresolved(seen[t.signal]) for t in rules.thresholds if t.signal in seen
    )


def hold_ends(state: EvictionState, rules: Rules, now: float) -> float | None:
    """Seconds until a condition that is no longer seen ends; None: there is none."""
    left = [last + rules.transition - now for last in state.pressed.values()]
    return max(0.0, min(left)) if left else None

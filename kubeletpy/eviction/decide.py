"""What a node under pressure does next, and which conditions it reports. Pure.

Time is an argument. Source: docs/reference/behaviour-resources.md, rc. A threshold
counts only when two looks in a row found it crossed: one number that jumps evicts nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from kubeletpy.eviction.signals import (
    ORDER,
    Condition,
    Observation,
    Observations,
    Signal,
    condition_of,
)
from kubeletpy.eviction.thresholds import Rules, Threshold


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered from look to look. Times are event-loop seconds.

    Attributes:
        suspected: thresholds that the last look found crossed.
        first_seen: since when thresholds are crossed.
        ready: those whose grace period was over: they count until the minimum is reclaimed.
        last: what the last look saw.
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
        """Those that are reported, in their order."""
        return tuple(each for each in Condition if each in self.since)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A threshold that is to be acted on, and what was seen."""

    threshold: Threshold
    seen: Observation
    since: float

    @property
    def quantity(self) -> int:
        """The threshold in bytes, inodes or tasks."""
        return self.threshold.amount.of(self.seen.capacity)


@dataclass(frozen=True, slots=True)
class Decision:
    """What comes of one look.

    Attributes:
        state: for the next one.
        act: on this threshold; None: on none.
        all: thresholds that are crossed, graces over and numbers new, first the one to act on.
        unsure: a threshold is crossed for the first time: look again at once.
    """

    state: State
    act: Crossing | None = None
    all: tuple[Crossing, ...] = ()
    unsure: bool = False


def decide(seen: Observations, rules: Rules, state: State, now: float) -> Decision:
    """What to do after a look.

    Args:
        seen: what is to be believed; a signal that is missing crosses nothing.
        rules: of the node.
        state: what the last decision left.
        now: event-loop seconds.
    """
    met = frozenset(t for t in rules.thresholds if t.signal in seen and t.met(seen[t.signal]))
    sure = {t for t in met if t in state.suspected or t in state.first_seen}
    for threshold in state.ready:
        if threshold.signal in seen and threshold.unresolved(seen[threshold.signal]):
            sure.add(threshold)
    first_seen = {t: state.first_seen.get(t, now) for t in rules.thresholds if t in sure}
    pressed = dict(state.pressed) | {condition_of(t.signal): now for t in first_seen}
    reported = [c for c, last in pressed.items() if last == now or now - last < rules.transition]
    ready = {t: since for t, since in first_seen.items() if now - since >= t.grace}
    crossings = tuple(
        Crossing(t, seen[t.signal], since)
        for t, since in sorted(ready.items(), key=lambda each: _place(each[0]))
        if _is_new(seen[t.signal], state.last.get(t.signal))
    )
    new_state = State(
        suspected=met,
        first_seen=first_seen,
        ready=frozenset(ready),
        last=seen,
        pressed={c: last for c, last in pressed.items() if c in reported},
        since={c: state.since.get(c, now) for c in reported},
    )
    act = crossings[0] if crossings else None
    return Decision(new_state, act, crossings, unsure=bool(met - sure))


def restored(state: State, shown: Collection[Condition], now: float) -> State:
    """With the conditions that the cluster was told of by an earlier run of the agent.

    They are held as if seen now: a node does not get well by its agent's restart.
    """
    new = [condition for condition in shown if condition not in state.pressed]
    return replace(
        state,
        pressed={**state.pressed, **dict.fromkeys(new, now)},
        since={**state.since, **dict.fromkeys(new, now)},
    )


def is_well(seen: Observations, rules: Rules, acted: Signal) -> bool:
    """Whether no threshold at all is crossed, with what is to be reclaimed, graces aside.

    Source: docs/reference/behaviour-resources.md, rc. ``acted`` is the signal for which
    something was reclaimed: while it is not seen, the node is not known to be well.
    """
    return acted in seen and not any(
        t.unresolved(seen[t.signal]) for t in rules.thresholds if t.signal in seen
    )


def hold_ends(state: State, rules: Rules, now: float) -> float | None:
    """Seconds until a condition that is not seen any more ends; None: there is none."""
    left = [last + rules.transition - now for last in state.pressed.values()]
    return max(0.0, min(left)) if left else None


def _place(threshold: Threshold) -> tuple[int, float]:
    return ORDER[threshold.signal], threshold.grace


def _is_new(seen: Observation, last: Observation | None) -> bool:
    return last is None or seen.at > last.at

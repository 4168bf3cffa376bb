"""Which records and transitions of a pod worker are possible, and the last events of each. Pure.

The state machine checks itself with it after each event: the record that the event is about always,
all records in tests and simulations. A violation is a fault of the state machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from kubeletpy.podworkers.records import (
    Event,
    PodRejected,
    Stage,
    StatusOutdated,
    SyncEnded,
    UpdateArrived,
    WorkerRecord,
)

LAST_EVENTS = 8
"""Events of a pod that are kept."""
_SHOWN = 120
_SET_ONCE = ("full_name", "first_seen_at", "started_at", "terminating_at", "terminated_at")
_NEVER_UNSET = ("deleted", "evicted", "finished", "observed_runtime", "restart_requested")


class ImpossibleTransition(AssertionError):
    """The state machine did what it must never do; the text has the pod's last events."""

    def __init__(self, uid: str, why: str, events: tuple[str, ...]) -> None:
        super().__init__(f"pod worker {uid}: {why}; last events: {', '.join(events)}")
        self.uid = uid
        self.why = why
        self.events = events


def violation(before: WorkerRecord | None, after: WorkerRecord | None) -> str:
    """The impossible part of a record's change by one event; empty: none."""
    if before is after:
        return ""
    return next(_violations(before, after), "")


def _violations(before: WorkerRecord | None, after: WorkerRecord | None) -> Iterator[str]:
    if after is None:
        if before is not None and before.running in (Stage.SYNC, Stage.TERMINATED):
            yield f"forgotten while a sync of stage {before.running} runs"
        return
    if after.finished and (after.running is not None or after.pending is not None):
        yield "has work after it has finished"
    if after.finished and after.terminated_at is None:
        yield "finished before it has terminated"
    if after.terminated_at is not None and after.terminating_at is None:
        yield "terminated without a request"
    if after.running is not None and after.active is None:
        yield "a sync runs without work"
    if after.running is Stage.TERMINATING and after.terminating_at is None:
        yield "terminates without a request"
    if (after.running is Stage.TERMINATED) != (
        after.running is not None and after.terminated_at is not None
    ):
        yield f"a sync of stage {after.running} runs in stage {after.stage}"
    if after.grace is not None and after.grace < 1:
        yield f"grace period of {after.grace} s"
    if before is None:
        return
    for name in _SET_ONCE:
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and old != new:
            yield f"{name} has changed from {old} to {new}"
    for name in _NEVER_UNSET:
        if getattr(before, name) and not getattr(after, name):
            yield f"{name} was undone"
    if before.grace is not None and (after.grace is None or after.grace > before.grace):
        yield f"the grace period has grown from {before.grace} to {after.grace} s"


def check_all(
    before: Mapping[str, WorkerRecord], after: Mapping[str, WorkerRecord]
) -> tuple[str, str]:
    """The uid of the first impossible record and what is wrong with it; empty: nothing is."""
    for uid in {**before, **after}:
        if why := violation(before.get(uid), after.get(uid)):
            return uid, why
    return "", ""


class EventTrail:
    """The last events of each pod that has a record, as text."""

    def __init__(self) -> None:
        self._kept: dict[str, deque[tuple[float | None, str, str]]] = {}

    def add(self, uid: str, event: Event) -> None:
        """Keep an event; one that only shows a status again is left out."""
        entry: tuple[float | None, str, str]
        match event:
            case StatusOutdated():
                return
            case UpdateArrived():
                entry = (event.now, "update", event.update.type.value)
            case SyncEnded(_, outcome, now):
                entry = (now, "sync ended", "cut short" if outcome is None else outcome.error)
            case PodRejected(_, rejection):
                entry = (None, "rejected", rejection.reason.value)
            case _:
                entry = (event.now, type(event).__name__, "")
        kept = self._kept.get(uid)
        if kept is None:
            kept = self._kept[uid] = deque(maxlen=LAST_EVENTS)
        kept.append(entry)

    def forget(self, uid: str) -> None:
        """The pod has no record any more."""
        self._kept.pop(uid, None)

    def last_events(self, uid: str) -> tuple[str, ...]:
        """The last events of a pod, oldest first."""
        return tuple(
            f"{'' if now is None else f'{now:.3f} '}{kind}{detail and f': {detail[:_SHOWN]}'}"
            for now, kind, detail in self._kept.get(uid, ())
        )

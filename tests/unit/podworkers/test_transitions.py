"""The check for impossible transitions of a pod worker, and its reports."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.podworkers.records import (
    LAST_EVENTS,
    Effect,
    Event,
    EventTrail,
    ImpossibleTransition,
    PodRejected,
    PodUpdate,
    Stage,
    StatusOutdated,
    SyncEnded,
    SyncOutcome,
    TimerFired,
    UpdateArrived,
    UpdateType,
    Work,
    WorkerRecord,
    violation,
)
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.podworkers.workers import log_impossible
from kubeletpy.resources.admission.checks import Rejection
from tests.unit.podworkers.builders import make_pod

POD = make_pod()
WORK = Work(UpdateType.SYNC, POD)
NEW = WorkerRecord("u", "web_default", first_seen_at=1.0)
SYNCING = replace(NEW, active=WORK, running=Stage.SYNC, started_at=2.0)
TERMINATING = replace(SYNCING, running=Stage.TERMINATING, terminating_at=3.0, grace=30)
TERMINATED = replace(TERMINATING, running=Stage.TERMINATED, terminated_at=4.0)
FINISHED = replace(TERMINATED, running=None, finished=True)
LIFE = (None, NEW, SYNCING, TERMINATING, TERMINATED, FINISHED, None)


@pytest.mark.parametrize(("before", "after"), list(pairwise(LIFE)))
def test_a_life_is_possible(before: WorkerRecord | None, after: WorkerRecord | None) -> None:
    assert violation(before, after) == ""


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (SYNCING, None, "forgotten while a sync of stage sync runs"),
        (TERMINATED, None, "forgotten while a sync of stage terminated runs"),
        (None, replace(FINISHED, pending=WORK), "has work after it has finished"),
        (None, replace(FINISHED, running=Stage.TERMINATED), "has work after it has finished"),
        (None, replace(FINISHED, terminated_at=None), "finished before it has terminated"),
        (None, replace(TERMINATED, terminating_at=None), "terminated without a request"),
        (None, replace(SYNCING, active=None), "a sync runs without work"),
        (None, replace(TERMINATING, terminating_at=None), "terminates without a request"),
        (None, replace(TERMINATED, running=Stage.SYNC), "a sync of stage sync runs in stage"),
        (None, replace(TERMINATED, terminated_at=None), "a sync of stage terminated runs in"),
        (None, replace(TERMINATING, grace=0), "grace period of 0 s"),
        (TERMINATING, replace(TERMINATING, terminating_at=None, running=None), "terminating_at"),
        (TERMINATING, replace(TERMINATING, terminating_at=9.0), "terminating_at has changed"),
        (SYNCING, replace(SYNCING, started_at=9.0), "started_at has changed from 2.0 to 9.0"),
        (FINISHED, replace(FINISHED, finished=False), "finished was undone"),
        (replace(NEW, deleted=True), NEW, "deleted was undone"),
        (replace(NEW, evicted=True), NEW, "evicted was undone"),
        (TERMINATING, replace(TERMINATING, grace=31), "has grown from 30 to 31 s"),
        (TERMINATING, replace(TERMINATING, grace=None), "has grown from 30 to None s"),
    ],
)
def test_impossible_transitions(
    before: WorkerRecord | None, after: WorkerRecord | None, why: str
) -> None:
    assert why in violation(before, after)


class Forgetful(WorkerMachine):
    """Undoes a termination when a timer fires."""

    def _handle(self, event: Event) -> list[Effect]:
        effects = super()._handle(event)
        if isinstance(event, TimerFired):
            self.records["uid-web"] = replace(
                self.records["uid-web"], terminating_at=None, running=None
            )
        return effects


def ending(machine: WorkerMachine) -> None:
    machine.handle(UpdateArrived(PodUpdate(UpdateType.CREATE, pod=POD), 100.0))
    machine.handle(SyncEnded(POD.uid, SyncOutcome(error="no network"), 101.0))
    machine.handle(UpdateArrived(PodUpdate(UpdateType.KILL, pod=POD), 102.0))
    machine.handle(SyncEnded(POD.uid, None, 103.0))


EVENTS = (
    f"100.000 update: {UpdateType.CREATE}",
    "101.000 sync ended: no network",
    f"102.000 update: {UpdateType.KILL}",
    "103.000 sync ended: cut short",
    "104.000 TimerFired",
)


def test_in_tests_an_impossible_transition_raises_with_the_last_events() -> None:
    machine = Forgetful()
    ending(machine)
    with pytest.raises(ImpossibleTransition, match="terminating_at has changed") as caught:
        machine.handle(TimerFired(POD.uid, 104.0))
    assert caught.value.events == EVENTS
    assert EVENTS[0] in str(caught.value)


def test_in_production_it_is_logged_and_the_pod_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(WorkerMachine, "validate", False)
    machine = Forgetful(impossible=log_impossible)
    ending(machine)
    with caplog.at_level(logging.ERROR):
        assert machine.handle(TimerFired(POD.uid, 104.0))
    (record,) = caplog.records
    logged: Any = record
    assert "impossible transition" in record.message
    assert (logged.uid, logged.events) == (POD.uid, EVENTS)


def test_the_trail_is_bounded_and_ends_with_the_record() -> None:
    trail = EventTrail()
    for second in range(20):
        trail.add("u", TimerFired("u", second))
    trail.add("u", StatusOutdated(POD, None))
    trail.add("u", PodRejected(POD, Rejection(AdmissionReason.OUT_OF_CPU, "too little")))
    assert len(trail.last_events("u")) == LAST_EVENTS
    assert trail.last_events("u")[-2:] == ("19.000 TimerFired", "rejected: OutOfcpu")
    trail.forget("u")
    assert trail.last_events("u") == ()

"""Notes of syncs, such as when the trouble of a pod began."""

from __future__ import annotations

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.runtime_status import Decision, KillReason
from kubeletpy.podworkers.history import DecisionHistory
from kubeletpy.podworkers.records import RunSync, Stage, SyncOutcome, UpdateType, Work, WorkerRecord
from kubeletpy.podworkers.workers import SyncNotes
from tests.unit.podworkers.builders import make_pod


def killed(reason: KillReason) -> Decision:
    return Decision("kill", "why", killed="main", kill_reason=reason)


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (SyncOutcome(), False),
        (None, False),
        (SyncOutcome(decisions=(Decision("start container main", "it is new"),)), False),
        (SyncOutcome(error="e"), True),
        (SyncOutcome(error="back-off", waiting=True), True),
        (SyncOutcome(decisions=(Decision("a", "b"), Decision("a", "b", restarts=True))), True),
        (SyncOutcome(decisions=(killed(KillReason.LIVENESS_PROBE),)), True),
        (SyncOutcome(decisions=(killed(KillReason.STARTUP_PROBE),)), True),
        (SyncOutcome(decisions=(killed(KillReason.DEFINITION_CHANGED),)), False),
        (SyncOutcome(decisions=(killed(KillReason.RESIZE),)), False),
    ],
)
def test_since_when(outcome: SyncOutcome | None, wrong: bool) -> None:
    notes = SyncNotes(DecisionHistory(), Metrics().workers)
    run = RunSync("u", Stage.SYNC, Work(UpdateType.SYNC, make_pod()))
    notes.ended(run, outcome, 5.0)
    assert notes.troubles.since("u", 5.0) == (5.0 if wrong else None)


def test_a_decision_during_a_sync_has_its_own_time() -> None:
    """A restart may take long, and the container ended before it."""
    history = DecisionHistory()
    notes = SyncNotes(history, Metrics().workers)
    history.add("u", iter([killed(KillReason.LIVENESS_PROBE)]), 5.0)
    run = RunSync("u", Stage.SYNC, Work(UpdateType.SYNC, make_pod()))
    notes.ended(run, SyncOutcome(error="e"), 9.0)
    assert notes.troubles.as_json() == {"failing": {"u": [5.0, 9.0]}}
    assert [entry.at for entry in notes.history.decisions("u")] == [5.0, 9.0]
    history.add("v", [Decision("a", "b")], 5.0)
    assert notes.troubles.since("v", 5.0) is None


@pytest.mark.parametrize(
    ("record", "ended_at"),
    [
        (WorkerRecord("u", "web_default", terminating_at=5.0, evicted=True), 5.0),
        (WorkerRecord("u", "web_default", terminating_at=5.0, status_override=dict), 5.0),  # type: ignore[arg-type]
        (WorkerRecord("u", "web_default", terminating_at=5.0), None),
    ],
)
def test_an_end_that_the_api_has_no_time_of_is_noted(
    record: WorkerRecord, ended_at: float | None
) -> None:
    notes = SyncNotes(DecisionHistory(), Metrics().workers)
    run = RunSync("u", Stage.TERMINATING, Work(UpdateType.KILL, make_pod()))
    notes.begins(run, record, 9.0)
    notes.begins(run, record, 10.0)
    notes.removed("u")
    assert notes.troubles.ended_at("u") == ended_at
    notes.begins(RunSync("u", Stage.SYNC, Work(UpdateType.SYNC, make_pod())), record, 11.0)
    assert notes.troubles.ended_at("u") is None


def test_a_refusal_is_noted_until_no_source_has_the_pod() -> None:
    notes = SyncNotes(DecisionHistory(), Metrics().workers)
    notes.refused("u", 5.0)
    notes.removed("u")
    assert notes.troubles.ended_at("u") == 5.0
    notes.forgotten("u")
    assert notes.troubles.as_json() == {}

"""What is noted of syncs: since when something is wrong with a pod."""

from __future__ import annotations

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.decision import Decision, KillReason
from kubeletpy.podworkers.history import DecisionHistory
from kubeletpy.podworkers.protocol import SyncOutcome, UpdateType
from kubeletpy.podworkers.records import RunSync, Stage, Work
from kubeletpy.podworkers.sync_notes import SyncNotes
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

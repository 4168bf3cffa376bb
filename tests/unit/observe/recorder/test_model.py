"""The pod whose story an event belongs to."""

from __future__ import annotations

import pytest

from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.records import (
    DesiredPods,
    Event,
    PodRejected,
    PodUpdate,
    StatusOutdated,
    SyncEnded,
    TimerFired,
    UpdateArrived,
    UpdateType,
    event_uid,
)
from kubeletpy.resources.admission.checks import Rejection
from tests.unit.podworkers.builders import make_pod

POD = make_pod(uid="u")
RUNNING = PodRuntimeStatus("r", "n", "ns")


@pytest.mark.parametrize(
    ("event", "uid"),
    [
        (UpdateArrived(PodUpdate(UpdateType.SYNC, POD), 1.0), "u"),
        (UpdateArrived(PodUpdate(UpdateType.KILL, runtime_pod=RUNNING), 1.0), "r"),
        (UpdateArrived(PodUpdate(UpdateType.KILL), 1.0), ""),
        (StatusOutdated(POD, None), "u"),
        (PodRejected(POD, Rejection(AdmissionReason("OutOfcpu"), "no CPU")), "u"),
        (SyncEnded("u", None, 1.0), "u"),
        (TimerFired("u", 1.0), "u"),
        (DesiredPods(frozenset("u"), 1.0), ""),
    ],
)
def test_the_pod_of_an_event(event: Event, uid: str) -> None:
    assert event_uid(event) == uid

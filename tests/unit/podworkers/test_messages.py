"""Changes that one message makes to a worker's record."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers import state_machine
from kubeletpy.podworkers.records import (
    KillOptions,
    PodUpdate,
    Stage,
    UpdateArrived,
    UpdateType,
    Work,
    WorkerRecord,
)
from tests.unit.podworkers.builders import make_pod, runtime_status

POD, GOING, FAILED = make_pod(), make_pod(deleting=20), make_pod(phase="Failed")


def record(**known: Any) -> WorkerRecord:
    return WorkerRecord("u", "p_d", **known)


@pytest.mark.parametrize(
    ("pod", "quiet", "over"),
    [
        (FAILED, True, True),
        (FAILED, False, False),
        (POD, True, False),
        (GOING, True, False),
        (None, True, False),
    ],
)
def test_a_pod_that_ended_under_an_earlier_agent(pod: Pod | None, quiet: bool, over: bool) -> None:
    event = UpdateArrived(PodUpdate(UpdateType.CREATE, pod=pod), 100.0, quiet)
    made = state_machine.new_record("u", "p_d", event)
    expected = {"terminating_at": 100.0, "terminated_at": 100.0} if over else {}
    assert made == record(first_seen_at=100.0, **expected)


ENDS: dict[str, Any] = {"terminating_at": 5.0}


@pytest.mark.parametrize(
    ("before", "after", "urgent"),
    [
        ({"running": Stage.SYNC}, {}, False),
        ({"running": Stage.SYNC}, ENDS, True),
        ({"running": Stage.SYNC, **ENDS}, {}, False),
        ({"running": Stage.SYNC, "grace": 5}, {"grace": 3}, False),
        ({"running": Stage.TERMINATING, **ENDS, "grace": 5}, {"grace": 3}, True),
        ({"running": Stage.TERMINATING, **ENDS, "grace": 5}, {"grace": 5}, False),
        ({"running": Stage.TERMINATING, **ENDS, "grace": 5}, {"grace": 6}, False),
        ({"running": Stage.TERMINATING, **ENDS, "grace": 5}, {"grace": None}, False),
        ({"running": Stage.TERMINATING, **ENDS}, {"grace": 5}, False),
        ({"running": Stage.TERMINATED, **ENDS, "grace": 5}, {"grace": 3}, False),
        ({**ENDS, "grace": 5}, {"grace": 3}, False),
        ({}, ENDS, False),
    ],
)
def test_changes_that_cut_a_sync_short(
    before: dict[str, Any], after: dict[str, Any], urgent: bool
) -> None:
    assert state_machine.is_urgent(record(**before), record(**{**before, **after})) is urgent


SYNC, KILL = UpdateType.SYNC, UpdateType.KILL


@pytest.mark.parametrize(
    ("update", "changes"),
    [
        (PodUpdate(SYNC, pod=POD), {}),
        (PodUpdate(SYNC, pod=GOING), {"deleted": True}),
        (PodUpdate(SYNC, pod=FAILED), {"terminating_at": 9.0}),
        (PodUpdate(SYNC), {"deleted": True}),
        (PodUpdate(KILL, pod=POD), {"terminating_at": 9.0}),
        (PodUpdate(KILL, pod=POD, kill=KillOptions()), {"terminating_at": 9.0}),
        (PodUpdate(KILL, pod=POD, kill=KillOptions(evict=True)), {"evicted": True}),
        (PodUpdate(KILL, pod=GOING, kill=KillOptions(evict=True)), {"deleted": True}),
        (PodUpdate(SYNC, pod=POD, kill=KillOptions(evict=True)), {}),
    ],
)
def test_updates_that_request_termination(update: PodUpdate, changes: dict[str, Any]) -> None:
    expected = record(**{"terminating_at": 9.0, **changes}) if changes else record()
    assert state_machine.request_termination(record(), update, 9.0) == expected
    ending = record(terminating_at=1.0)
    assert state_machine.request_termination(ending, update, 9.0) is ending


@pytest.mark.parametrize(
    ("grace", "override", "pod", "expected"),
    [
        (None, None, None, 1),
        (None, 5, None, 5),
        (3, 5, None, 3),
        (5, 3, None, 3),
        (None, 0, None, 1),
        (5, None, None, 1),
        (None, None, POD, 30),
        (None, None, GOING, 20),
        (10, None, GOING, 10),
        (10, 4, GOING, 4),
    ],
)
def test_the_shortest_grace_counts(
    grace: int | None, override: int | None, pod: Pod | None, expected: int
) -> None:
    options = KillOptions(grace_override=override)
    assert state_machine.merge_kill(record(grace=grace), options, pod).grace == expected
    if override is None:
        assert state_machine.merge_kill(record(grace=grace), None, pod).grace == expected


def _one(status: api.PodStatus) -> api.PodStatus:
    return {**status, "reason": "one"}


def _two(status: api.PodStatus) -> api.PodStatus:
    return {**status, "reason": "two"}


def test_the_newest_status_counts() -> None:
    first = state_machine.merge_kill(record(), KillOptions(status_override=_one), POD)
    assert first.status_override is _one
    assert state_machine.merge_kill(first, None, POD).status_override is _one
    second = state_machine.merge_kill(first, KillOptions(status_override=_two), POD)
    assert second.status_override is _two


@pytest.mark.parametrize(
    ("waiting", "arrived", "since"),
    [(None, 9.0, 9.0), (5.0, 9.0, 5.0), (9.0, 5.0, 5.0), (0.0, 9.0, 9.0), (5.0, 0.0, 5.0)],
)
def test_since_when_it_waits(waiting: float | None, arrived: float, since: float) -> None:
    pending = None if waiting is None else Work(SYNC, POD, received_at=waiting)
    work = state_machine.next_work(
        record(pending=pending), PodUpdate(SYNC, pod=POD, received_at=arrived), POD
    )
    assert work == Work(SYNC, POD, received_at=since)


MIRROR, OTHER = make_pod("mirror"), make_pod("other")
STATUS = runtime_status()


@pytest.mark.parametrize(
    ("pending", "update", "pod", "mirror", "runtime_pod"),
    [
        (None, PodUpdate(SYNC, pod=POD, mirror=MIRROR), POD, MIRROR, None),
        (None, PodUpdate(SYNC), POD, None, None),
        (MIRROR, PodUpdate(SYNC), POD, MIRROR, None),
        (MIRROR, PodUpdate(SYNC, pod=POD), POD, None, None),
        (MIRROR, PodUpdate(SYNC, mirror=OTHER), POD, OTHER, None),
        (None, PodUpdate(SYNC, runtime_pod=STATUS), POD, None, None),
        (None, PodUpdate(SYNC, runtime_pod=STATUS), None, None, STATUS),
    ],
)
def test_the_pods_passed_to_the_next_sync(
    pending: Pod | None, update: PodUpdate, pod: Pod | None, mirror: Pod | None, runtime_pod: Any
) -> None:
    waiting = None if pending is None else Work(SYNC, POD, mirror=pending)
    work = state_machine.next_work(record(pending=waiting), update, pod)
    assert (work.type, work.pod, work.mirror, work.runtime_pod) == (SYNC, pod, mirror, runtime_pod)


@pytest.mark.parametrize(
    ("pending", "active", "known"),
    [
        (None, None, None),
        (Work(SYNC, None), None, None),
        (Work(SYNC, None), Work(SYNC, POD), POD),
        (Work(SYNC, GOING), Work(SYNC, POD), GOING),
        (None, Work(SYNC, POD), POD),
    ],
)
def test_the_newest_pod_of_a_worker(
    pending: Work | None, active: Work | None, known: Pod | None
) -> None:
    assert record(pending=pending, active=active).pod is known

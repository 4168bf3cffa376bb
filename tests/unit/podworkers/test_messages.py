"""The record of a worker: messages, transitions, requeues, queries and notes about syncs."""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, KillReason
from kubeletpy.podworkers import state_machine
from kubeletpy.podworkers.history import DecisionHistory
from kubeletpy.podworkers.records import (
    LAST_EVENTS,
    Effect,
    Event,
    EventTrail,
    ImpossibleTransition,
    KillOptions,
    PodRejected,
    PodUpdate,
    RunSync,
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
from kubeletpy.podworkers.state_machine import (
    NamesInUse,
    RequeueSettings,
    StaticNames,
    WorkerMachine,
    WorkerQueries,
    effective_grace,
    requeue_delay,
    tick_of,
)
from kubeletpy.podworkers.workers import SyncNotes, log_impossible
from kubeletpy.resources.admission.checks import Rejection
from tests.kit.pods import make_pod, runtime_status

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


# The check for impossible transitions of a pod worker, and its reports.

TRANSITIONS_POD = make_pod()
WORK = Work(UpdateType.SYNC, TRANSITIONS_POD)
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
    machine.handle(UpdateArrived(PodUpdate(UpdateType.CREATE, pod=TRANSITIONS_POD), 100.0))
    machine.handle(SyncEnded(TRANSITIONS_POD.uid, SyncOutcome(error="no network"), 101.0))
    machine.handle(UpdateArrived(PodUpdate(UpdateType.KILL, pod=TRANSITIONS_POD), 102.0))
    machine.handle(SyncEnded(TRANSITIONS_POD.uid, None, 103.0))


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
        machine.handle(TimerFired(TRANSITIONS_POD.uid, 104.0))
    assert caught.value.events == EVENTS
    assert EVENTS[0] in str(caught.value)


def test_in_production_it_is_logged_and_the_pod_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(WorkerMachine, "validate", False)
    machine = Forgetful(impossible=log_impossible)
    ending(machine)
    with caplog.at_level(logging.ERROR):
        assert machine.handle(TimerFired(TRANSITIONS_POD.uid, 104.0))
    (record,) = caplog.records
    logged: Any = record
    assert "impossible transition" in record.message
    assert (logged.uid, logged.events) == (TRANSITIONS_POD.uid, EVENTS)


def test_the_trail_is_bounded_and_ends_with_the_record() -> None:
    trail = EventTrail()
    for second in range(20):
        trail.add("u", TimerFired("u", second))
    trail.add("u", StatusOutdated(TRANSITIONS_POD, None))
    trail.add(
        "u", PodRejected(TRANSITIONS_POD, Rejection(AdmissionReason.OUT_OF_CPU, "too little"))
    )
    assert len(trail.last_events("u")) == LAST_EVENTS
    assert trail.last_events("u")[-2:] == ("19.000 TimerFired", "rejected: OutOfcpu")
    trail.forget("u")
    assert trail.last_events("u") == ()


# The delay before a worker's next sync, and the grace period of a pod.


@pytest.mark.parametrize(
    ("current", "deletion", "override", "expected"),
    [
        (None, None, None, 30),
        (None, 10, None, 10),
        (None, 10, 5, 5),
        (None, 10, 20, 10),
        (5, 10, 20, 5),
        (5, None, 3, 3),
        (None, 0, None, 1),
        (None, None, 0, 1),
        (20, None, None, 20),
    ],
)
def test_grace(
    current: int | None, deletion: int | None, override: int | None, expected: int
) -> None:
    assert effective_grace(current, make_pod(deleting=deletion), override) == expected


@pytest.mark.parametrize(
    ("outcome", "delay"),
    [
        (SyncOutcome(), 60.0 * 1.25),
        (SyncOutcome(error="no", network_not_ready=True), 1.25),
        (SyncOutcome(error="backoff", retry_at=1007.5), 7.5),
        (SyncOutcome(error="backoff over", retry_at=990.0), 0.1),
        (SyncOutcome(error="far", retry_at=9999.0, waiting=True), 75.0),
        (SyncOutcome(error="far, and something else", retry_at=9999.0), 12.5),
        (SyncOutcome(deadline=1003.5), 3.5),
        (SyncOutcome(deadline=990.0), 0.1),
        (SyncOutcome(error="other", deadline=9999.0), 12.5),
        (SyncOutcome(error="backoff", retry_at=1007.5, deadline=1002.0), 2.0),
        (SyncOutcome(retry_at=1030.0), 30.0),
        (SyncOutcome(error="other"), 12.5),
        (None, 12.5),
    ],
)
def test_requeue(outcome: SyncOutcome | None, delay: float) -> None:
    assert requeue_delay(outcome, 1000.0, 0.25, RequeueSettings()) == pytest.approx(delay)


@pytest.mark.parametrize(
    ("frequency", "jitter", "now", "delay"),
    [
        (60.0, 0.0, 1000.0, 60.0),
        (60.0, 0.0, 1000.5, 61.5),
        (60.0, 0.02, 1000.5, 61.5),
        (60.0, 0.5, 1000.0, 90.0),
        (60.0, 0.49, 1001.9, 88.1),
        (60.0, 0.5, 1001.9, 88.1),
        (1.0, 0.0, 1000.3, 1.2),
        (1.0, 0.49, 1000.3, 1.2),
        (1.0, 0.5, 1000.0, 1.5),
    ],
)
def test_pods_with_nothing_due_are_synced_together(
    frequency: float, jitter: float, now: float, delay: float
) -> None:
    settings = RequeueSettings(sync_frequency=frequency, tick=2.0)
    assert requeue_delay(SyncOutcome(), now, jitter, settings) == pytest.approx(delay)


def test_nodes_tick_at_different_times() -> None:
    ticks = [tick_of(f"node-{number}") for number in range(200)]
    assert len(set(ticks)) == 200
    assert 1.8 <= min(ticks) < 1.85
    assert 2.15 < max(ticks) <= 2.2
    assert tick_of("node-7") == ticks[7]


SETTINGS = RequeueSettings(sync_frequency=60.0, error_backoff=10.0, network_backoff=2.0)
QUICK = RequeueSettings(sync_frequency=4.0, error_backoff=10.0, network_backoff=2.0)


@pytest.mark.parametrize(
    ("outcome", "settings", "delay"),
    [
        (None, QUICK, 6.0),
        (SyncOutcome(error="no"), QUICK, 6.0),
        (SyncOutcome(error="no", retry_at=109.0), QUICK, 6.0),
        (SyncOutcome(error="no", retry_at=103.0), QUICK, 3.0),
        (SyncOutcome(error="no", retry_at=109.0, waiting=True), QUICK, 6.0),
        (SyncOutcome(network_not_ready=True), SETTINGS, 3.0),
        # at once, but not without end
        (SyncOutcome(retry_at=100.0), SETTINGS, 0.1),
        (SyncOutcome(retry_at=100.0001), SETTINGS, 0.001),
        (SyncOutcome(retry_at=100.01), SETTINGS, 0.01),
        (SyncOutcome(deadline=100.0), SETTINGS, 0.1),
        (SyncOutcome(deadline=100.0001), SETTINGS, 0.001),
        (SyncOutcome(deadline=100.01), SETTINGS, 0.01),
        (SyncOutcome(deadline=500.0), SETTINGS, 90.0),
        (SyncOutcome(retry_at=140.0), SETTINGS, 40.0),
        (SyncOutcome(retry_at=500.0), SETTINGS, 90.0),
        (SyncOutcome(error="no", retry_at=140.0), SETTINGS, 15.0),
        (SyncOutcome(error="no", retry_at=140.0, waiting=True), SETTINGS, 40.0),
    ],
)
def test_when_to_sync_again(
    outcome: SyncOutcome | None, settings: RequeueSettings, delay: float
) -> None:
    assert requeue_delay(outcome, 100.0, 0.5, settings) == pytest.approx(delay)


# Queries of the agent to its workers, for each state of a record; and use of static names.

QUERIES_GOING: dict[str, Any] = {"terminating_at": 0.0}
REMOVED = {**QUERIES_GOING, "terminated_at": 0.0}
QUESTIONS = (
    "could_have_running_containers",
    "is_termination_requested",
    "is_known_terminated",
    "should_content_be_removed",
    "should_be_finished",
    "is_static_terminating",
)


@pytest.mark.parametrize(
    ("known", "yes"),
    [
        ({}, "could_have_running_containers"),
        (
            QUERIES_GOING,
            "could_have_running_containers is_termination_requested is_static_terminating",
        ),
        (
            {**QUERIES_GOING, "deleted": True, "evicted": True},
            "could_have_running_containers is_termination_requested is_static_terminating",
        ),
        (REMOVED, "is_termination_requested is_known_terminated"),
        (
            {**REMOVED, "deleted": True},
            "is_termination_requested is_known_terminated should_content_be_removed",
        ),
        (
            {**REMOVED, "evicted": True},
            "is_termination_requested is_known_terminated should_content_be_removed",
        ),
        (
            {**REMOVED, "finished": True},
            "is_termination_requested is_known_terminated should_be_finished",
        ),
    ],
)
@pytest.mark.parametrize("synced", [False, True])
def test_queries_by_state_of_the_record(known: dict[str, Any], yes: str, synced: bool) -> None:
    machine = WorkerMachine(RequeueSettings())
    machine.synced = synced
    machine.records["u"] = WorkerRecord("u", "p_d", **known)
    assert machine.names.may_start("p_d", "u", lambda uid: True)
    queries = WorkerQueries(machine)
    answers = {
        each: getattr(queries, each)("p_d" if each == "is_static_terminating" else "u")
        for each in QUESTIONS
    }
    assert [each for each, answer in answers.items() if answer] == [
        each for each in QUESTIONS if each in yes.split()
    ]
    assert (queries.name_holder("p_d"), queries.name_holder("q_d")) == ("u", "")


@pytest.mark.parametrize("synced", [False, True])
def test_queries_without_a_record(synced: bool) -> None:
    """Until all pods are known, a pod without a record may be running."""
    machine = WorkerMachine(RequeueSettings())
    machine.synced = synced
    queries = WorkerQueries(machine)
    yes = [each for each in QUESTIONS if getattr(queries, each)("u")]
    after = ["should_content_be_removed", "should_be_finished"]
    assert yes == (after if synced else ["could_have_running_containers"])
    assert (queries.record("u"), dict(queries.all())) == (None, {})


def test_a_name_is_for_one_at_a_time_in_their_order() -> None:
    names, alive = StaticNames(), {"a", "b", "c", "d"}

    def may(uid: str) -> bool:
        return names.may_start("n", uid, alive.__contains__)

    assert may("a")
    for uid in ("b", "c", "b", "d"):
        names.wait("n", uid)
    assert names.in_use() == NamesInUse({"n": "a"}, {"n": ("b", "c", "d")})
    assert [may(uid) for uid in "abcd"] == [True, False, False, False]
    assert names.started("n") == "a"
    assert names.started("m") is None
    assert names.release("n", "b") == [], "it only leaves the queue"
    assert names.started("n") == "a"
    assert names.release("n", "a") == ["c", "d"]
    assert (may("d"), names.started("n")) == (False, None)
    names.wait("n", "a")
    alive.discard("c")
    assert [may(uid) for uid in "ad"] == [False, True]
    assert names.in_use() == NamesInUse({"n": "d"}, {"n": ("a",)})
    assert names.release("n", "d") == ["a"]
    assert may("a")
    assert names.in_use() == NamesInUse({"n": "a"})
    assert names.release("n", "a") == []
    assert names.in_use() == NamesInUse()
    assert may("e"), "nobody waits any more"
    assert names.release("m", "x") == []


# Notes of syncs, such as when the trouble of a pod began.


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
    notes.troubles.ends("u", 5.0)
    notes.removed("u")
    assert notes.troubles.ended_at("u") == 5.0
    notes.troubles.no_end("u")
    assert notes.troubles.as_json() == {}

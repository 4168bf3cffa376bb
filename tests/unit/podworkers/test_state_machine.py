"""The pod worker's rules, row by row, and invariants for any sequence of messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import (
    CompleteStatus,
    DesiredPods,
    Effect,
    Event,
    Finished,
    Forgotten,
    Interrupt,
    KillOptions,
    PodRejected,
    PodUpdate,
    RunSync,
    ShowRejection,
    Stage,
    StatusOutdated,
    SyncEnded,
    SyncOutcome,
    Terminated,
    TimerFired,
    UpdateArrived,
    UpdateType,
    WakeAfter,
    WorkerSummary,
)
from kubeletpy.podworkers.state_machine import NamesInUse, RequeueSettings, WorkerMachine
from kubeletpy.resources.admission.checks import Rejection
from tests.kit.pods import make_pod, make_static, runtime_status

OK = SyncOutcome()
UID = "uid-web"


def update(
    machine: WorkerMachine, kind: UpdateType, pod: Pod | None = None, **kwargs: Any
) -> list[Effect]:
    quiet = kwargs.pop("quiet", False)
    return machine.handle(UpdateArrived(PodUpdate(kind, pod=pod, **kwargs), 100.0, quiet))


def ended(machine: WorkerMachine, uid: str = UID, outcome: SyncOutcome | None = OK) -> list[Effect]:
    return machine.handle(SyncEnded(uid, outcome, 200.0))


def steps(effects: list[Effect]) -> list[tuple[str, Stage]]:
    return [(e.uid, e.stage) for e in effects if isinstance(e, RunSync)]


def only_step(effects: list[Effect]) -> RunSync:
    (step,) = effects
    assert isinstance(step, RunSync)
    return step


def kinds(effects: list[Effect]) -> list[type]:
    return [type(effect) for effect in effects]


def syncing() -> WorkerMachine:
    machine = WorkerMachine()
    update(machine, UpdateType.CREATE, make_pod())
    return machine


def terminating() -> WorkerMachine:
    machine = syncing()
    ended(machine)
    update(machine, UpdateType.KILL, make_pod())
    return machine


def terminated() -> WorkerMachine:
    machine = terminating()
    ended(machine)
    return machine


def finished() -> WorkerMachine:
    machine = terminated()
    ended(machine)
    return machine


def test_syncs_are_as_far_apart_as_configured() -> None:
    machine = WorkerMachine(RequeueSettings(sync_frequency=7.0))
    update(machine, UpdateType.CREATE, make_pod())
    assert ended(machine) == [WakeAfter(UID, 7.0)]


def test_a_message_about_nothing_changes_nothing() -> None:
    machine = WorkerMachine()
    for kind in UpdateType:
        assert update(machine, kind) == []
    assert update(machine, UpdateType.SYNC, runtime_pod=runtime_status()) == []
    assert machine.records == {}


def test_a_pod_that_is_created_twice_is_one_pod() -> None:
    machine, newer = WorkerMachine(), make_pod(labels={"a": "b"})
    update(machine, UpdateType.CREATE, make_pod())
    assert update(machine, UpdateType.CREATE, newer) == []
    record = machine.records[UID]
    assert (record.restart_requested, record.pod) == (False, newer)


def test_a_rejection_is_shown_unless_the_pod_ends_anyhow() -> None:
    machine, pod, rejection = (
        WorkerMachine(),
        make_pod(),
        Rejection(AdmissionReason("OutOfcpu"), "too little"),
    )
    reported = [ShowRejection(pod, rejection)]
    assert machine.handle(PodRejected(pod, rejection)) == reported
    update(machine, UpdateType.CREATE, pod)
    assert machine.handle(PodRejected(pod, rejection)) == reported
    update(machine, UpdateType.KILL, pod)
    assert machine.handle(PodRejected(pod, rejection)) == []


def test_a_message_without_a_mirror_leaves_the_one_that_is_known() -> None:
    machine, first, second = WorkerMachine(), make_static(uid="m1"), make_static(uid="m2")
    for notified, known in ((first, first), (None, first), (second, second), (None, second)):
        update(machine, UpdateType.UPDATE, make_pod(), mirror=notified)
        ended(machine)
        step = only_step(machine.handle(TimerFired(UID, 300.0)))
        assert step.work.mirror is known
        ended(machine)


def test_a_pod_that_ends_during_a_kill_keeps_the_options_of_the_kill() -> None:
    def killed(status: api.PodStatus) -> api.PodStatus:
        return {**status, "reason": "Killed"}

    def done(status: api.PodStatus) -> api.PodStatus:
        return {**status, "reason": "Done"}

    machine = WorkerMachine()
    update(machine, UpdateType.CREATE, make_pod())
    options = KillOptions(grace_override=3, status_override=killed)
    assert update(machine, UpdateType.KILL, make_pod(), kill=options) == [Interrupt(UID)]
    step = only_step(ended(machine, outcome=SyncOutcome(terminal=True, status_override=done)))
    assert (step.stage, step.grace, step.status_override) == (Stage.TERMINATING, 3, killed)
    assert machine.records[UID].terminating_at == 100.0


def test_a_sync_that_nobody_has_begun_does_not_end() -> None:
    machine = WorkerMachine()
    assert ended(machine) == []
    update(machine, UpdateType.CREATE, make_pod())
    assert kinds(ended(machine)) == [WakeAfter]
    assert ended(machine) == []


def test_a_timer_starts_the_next_sync() -> None:
    machine = WorkerMachine()
    assert machine.handle(TimerFired(UID, 300.0)) == []
    update(machine, UpdateType.CREATE, make_pod())
    assert machine.handle(TimerFired(UID, 300.0)) == [], "it runs"
    ended(machine)
    step = only_step(machine.handle(TimerFired(UID, 300.0)))
    assert (step.stage, step.work.type, step.work.received_at) == (Stage.SYNC, UpdateType.SYNC, 0.0)
    ended(machine)
    update(machine, UpdateType.KILL, make_pod())
    ended(machine, outcome=SyncOutcome(error="no answer"))
    step = only_step(machine.handle(TimerFired(UID, 300.0)))
    assert (step.stage, step.work.type) == (Stage.TERMINATING, UpdateType.KILL)
    ended(machine)
    ended(machine)
    assert machine.records[UID].finished
    assert machine.handle(TimerFired(UID, 300.0)) == []


def test_a_pod_that_has_not_started_has_nothing_to_show() -> None:
    machine, waiting = WorkerMachine(), make_static("web", uid="s2")
    update(machine, UpdateType.CREATE, make_static("web", uid="s1"))
    update(machine, UpdateType.CREATE, waiting)
    assert machine.records["s2"].started_at is None
    assert machine.handle(StatusOutdated(waiting, None)) == []


def test_a_pod_that_has_ended_is_kept_while_it_is_desired() -> None:
    machine = finished()
    assert machine.handle(DesiredPods(frozenset({UID}), 300.0)) == []
    assert machine.records[UID].finished


def test_a_termination_under_way_is_not_requested_again() -> None:
    machine = WorkerMachine()
    update(machine, UpdateType.CREATE, make_pod())
    ended(machine)
    assert steps(update(machine, UpdateType.KILL, make_pod())) == [(UID, Stage.TERMINATING)]
    assert machine.handle(DesiredPods(frozenset(), 300.0)) == []
    record = machine.records[UID]
    assert (record.deleted, record.pending) == (True, None)


def test_a_pod_has_started_once() -> None:
    machine = WorkerMachine()
    for now in (100.0, 300.0):
        message = PodUpdate(UpdateType.UPDATE, pod=make_pod())
        machine.handle(UpdateArrived(message, now, False))
        assert machine.records[UID].started_at == 100.0
        ended(machine)


def test_only_static_pods_wait_for_a_name() -> None:
    machine = WorkerMachine()
    update(machine, UpdateType.CREATE, make_pod())
    effects = update(machine, UpdateType.CREATE, make_static("web", uid="s"))
    assert steps(effects) == [("s", Stage.SYNC)]


def test_summaries_for_housekeeping() -> None:
    machine = WorkerMachine()
    update(machine, UpdateType.CREATE, make_pod())
    update(machine, UpdateType.CREATE, make_static(uid="s"))
    update(machine, UpdateType.KILL, runtime_pod=runtime_status("r"))
    assert machine.views(frozenset({UID})) == {
        UID: WorkerSummary(Stage.SYNC, orphan=False, has_config=True, static=False),
        "s": WorkerSummary(Stage.SYNC, orphan=True, has_config=True, static=True),
        "r": WorkerSummary(Stage.TERMINATING, orphan=True, has_config=False, static=False),
    }


def test_the_complete_life_of_a_pod() -> None:
    machine = WorkerMachine()
    assert steps(update(machine, UpdateType.CREATE, make_pod())) == [(UID, Stage.SYNC)]
    assert kinds(ended(machine)) == [WakeAfter]
    effects = update(machine, UpdateType.UPDATE, make_pod(deleting=30))
    assert steps(effects) == [(UID, Stage.TERMINATING)]
    effects = ended(machine)
    assert kinds(effects) == [Terminated, RunSync]
    assert steps(effects) == [(UID, Stage.TERMINATED)]
    assert ended(machine) == [Finished(UID)]
    assert machine.records[UID].stage is Stage.FINISHED
    assert machine.handle(DesiredPods(frozenset(), 1.0)) == [Forgotten(UID)]
    assert machine.records == {}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_first_sight_of_an_ended_pod_starts_as_terminated(phase: str) -> None:
    machine = WorkerMachine()
    pod = make_pod(phase=phase)
    assert steps(update(machine, UpdateType.CREATE, pod, quiet=True)) == [(UID, Stage.TERMINATED)]


def test_an_ended_pod_that_still_runs_is_terminated_first() -> None:
    machine = WorkerMachine()
    pod = make_pod(phase="Failed")
    assert steps(update(machine, UpdateType.CREATE, pod)) == [(UID, Stage.TERMINATING)]


def test_a_request_to_terminate_interrupts_the_sync() -> None:
    machine = syncing()
    assert update(machine, UpdateType.UPDATE, make_pod(deleting=5)) == [Interrupt(UID)]
    record = machine.records[UID]
    assert (record.termination_requested, record.deleted) == (True, True)
    assert steps(ended(machine, outcome=None)) == [(UID, Stage.TERMINATING)]


def test_a_terminal_sync_terminates() -> None:
    machine = syncing()
    assert steps(ended(machine, outcome=SyncOutcome(terminal=True))) == [(UID, Stage.TERMINATING)]
    assert machine.records[UID].grace == 30


def test_a_sync_that_refuses_the_pod_sets_its_final_status() -> None:
    machine = syncing()
    outcome = SyncOutcome(terminal=True, status_override=lambda status: {"phase": "Failed"})
    (step,) = (e for e in ended(machine, outcome=outcome) if isinstance(e, RunSync))
    assert step.stage is Stage.TERMINATING
    assert step.status_override is outcome.status_override


def test_messages_while_syncing_replace_each_other() -> None:
    machine = syncing()
    assert update(machine, UpdateType.UPDATE, make_pod(labels={"v": "1"}), received_at=5.0) == []
    update(machine, UpdateType.UPDATE, make_pod(labels={"v": "2"}), received_at=7.0)
    step = only_step(ended(machine))
    assert step.work.pod is not None
    assert step.work.pod.labels == {"v": "2"}
    assert step.work.received_at == 5.0


@pytest.mark.parametrize("made", [terminating, terminated, finished])
def test_create_after_termination_requests_a_restart(made: Callable[[], WorkerMachine]) -> None:
    machine = made()
    assert update(machine, UpdateType.CREATE, make_pod()) == []
    assert machine.records[UID].restart_requested
    while machine.records[UID].running:
        ended(machine)
    assert machine.handle(DesiredPods(frozenset({UID}), 1.0)) == [Forgotten(UID)]
    assert steps(update(machine, UpdateType.CREATE, make_pod())) == [(UID, Stage.SYNC)]


@pytest.mark.parametrize("kind", [UpdateType.UPDATE, UpdateType.SYNC, UpdateType.KILL])
def test_finished_ignores_everything(kind: UpdateType) -> None:
    machine = finished()
    assert update(machine, kind, make_pod()) == []
    assert machine.records[UID].stage is Stage.FINISHED


@pytest.mark.parametrize(
    ("made", "completed"), [(terminating, False), (terminated, True), (finished, True)]
)
def test_more_containers_of_an_ended_pod_complete_its_status(
    made: Callable[[], WorkerMachine], completed: bool
) -> None:
    machine, pod = made(), make_pod(ephemeralContainers=[{"name": "debug", "image": "i"}])
    stage = machine.records[UID].stage
    expected = [CompleteStatus(pod)] if completed else []
    assert update(machine, UpdateType.UPDATE, pod) == expected
    assert machine.records[UID].stage is stage


def test_terminated_ignores_a_runtime_only_kill() -> None:
    machine = terminated()
    assert update(machine, UpdateType.KILL, runtime_pod=runtime_status()) == []
    assert machine.records[UID].pending is None


def test_runtime_pods_can_only_be_killed() -> None:
    machine = WorkerMachine()
    assert update(machine, UpdateType.SYNC, runtime_pod=runtime_status()) == []
    assert machine.records == {}


def test_a_runtime_only_pod_leaves_nothing() -> None:
    machine = WorkerMachine()
    kill = KillOptions(grace_override=1)
    effects = update(machine, UpdateType.KILL, runtime_pod=runtime_status(), kill=kill)
    assert steps(effects) == [(UID, Stage.TERMINATING)]
    assert only_step(effects).grace == 1
    assert ended(machine) == [Terminated(UID), Forgotten(UID)]
    assert machine.records == {}


def test_a_runtime_only_kill_of_a_known_pod_uses_the_pod() -> None:
    machine = syncing()
    ended(machine)
    step = only_step(update(machine, UpdateType.KILL, runtime_pod=runtime_status()))
    assert step.work.pod is not None
    assert step.work.runtime_pod is None


def test_a_shorter_grace_counts_at_once_and_a_longer_one_never() -> None:
    machine = terminating()
    assert machine.records[UID].grace == 30
    assert update(machine, UpdateType.UPDATE, make_pod(deleting=3)) == [Interrupt(UID)]
    assert update(machine, UpdateType.UPDATE, make_pod(deleting=20)) == []
    step = only_step(ended(machine, outcome=None))
    assert (step.stage, step.grace) == (Stage.TERMINATING, 3)


def test_the_timer_runs_the_pod_again() -> None:
    machine = syncing()
    ended(machine)
    step = only_step(machine.handle(TimerFired(UID, 1.0)))
    assert (step.stage, step.work.type) == (Stage.SYNC, UpdateType.SYNC)
    assert machine.handle(TimerFired(UID, 1.0)) == []


class TestOrphanPass:
    def test_desired_pods_stay(self) -> None:
        machine = syncing()
        assert not machine.synced
        assert machine.handle(DesiredPods(frozenset({UID}), 1.0)) == []
        assert machine.records[UID].stage is Stage.SYNC
        assert machine.synced, "all pods are known from now on"

    def test_a_syncing_orphan_is_terminated(self) -> None:
        machine = syncing()
        assert machine.handle(DesiredPods(frozenset(), 1.0)) == [Interrupt(UID)]
        record = machine.records[UID]
        assert (record.deleted, record.grace) == (True, 30)
        assert steps(ended(machine, outcome=None)) == [(UID, Stage.TERMINATING)]

    def test_one_between_syncs_is_terminated_at_once(self) -> None:
        machine = WorkerMachine()
        update(machine, UpdateType.CREATE, make_pod(terminationGracePeriodSeconds=7))
        ended(machine)
        step = only_step(machine.handle(DesiredPods(frozenset(), 1.0)))
        assert (step.uid, step.stage, step.grace) == (UID, Stage.TERMINATING, 7)

    def test_a_pod_that_should_start_again_ends_first(self) -> None:
        machine = terminating()
        update(machine, UpdateType.CREATE, make_pod())
        assert machine.handle(DesiredPods(frozenset({UID}), 1.0)) == []
        assert not machine.records[UID].deleted

    def test_a_terminating_orphan_is_tried_again(self) -> None:
        machine = terminating()
        ended(machine, outcome=SyncOutcome(error="no"))
        effects = machine.handle(DesiredPods(frozenset(), 1.0))
        assert steps(effects) == [(UID, Stage.TERMINATING)]

    def test_one_never_started_is_forgotten(self) -> None:
        machine = WorkerMachine()
        update(machine, UpdateType.CREATE, make_static(uid="one"))
        update(machine, UpdateType.CREATE, make_static(uid="two"))
        effects = machine.handle(DesiredPods(frozenset({"one"}), 1.0))
        assert effects == [Terminated("two"), Forgotten("two")]


class TestStaticNames:
    def test_the_second_waits_for_the_first(self) -> None:
        machine = WorkerMachine()
        one, two = make_static(uid="one"), make_static(uid="two")
        assert steps(update(machine, UpdateType.CREATE, one)) == [("one", Stage.SYNC)]
        assert update(machine, UpdateType.CREATE, two) == []
        ended(machine, "one")
        update(machine, UpdateType.KILL, one)
        ended(machine, "one")
        effects = ended(machine, "one")
        assert effects == [Finished("one"), machine_step(machine, "two")]

    def test_a_started_pod_no_longer_waits_for_its_name(self) -> None:
        machine = WorkerMachine()
        for kind in (UpdateType.CREATE, UpdateType.UPDATE):
            update(machine, kind, make_static(uid="one"))
        update(machine, UpdateType.CREATE, make_static(uid="two"))
        name = machine.records["one"].full_name
        assert machine.names.in_use() == NamesInUse({name: "one"}, {name: ("two",)})

    def test_one_that_waits_and_is_to_end_never_starts(self) -> None:
        machine = WorkerMachine()
        update(machine, UpdateType.CREATE, make_static(uid="one"))
        update(machine, UpdateType.CREATE, make_static(uid="two"))
        update(machine, UpdateType.CREATE, make_static(uid="three"))
        effects = update(machine, UpdateType.KILL, make_static(uid="two"))
        assert effects == [Terminated("two"), Finished("two")]
        ended(machine, "one")
        update(machine, UpdateType.KILL, make_static(uid="one"))
        ended(machine, "one")
        assert steps(ended(machine, "one")) == [("three", Stage.SYNC)]


def machine_step(machine: WorkerMachine, uid: str) -> RunSync:
    record = machine.records[uid]
    assert record.running is Stage.SYNC
    assert record.active is not None
    return RunSync(uid, Stage.SYNC, record.active, 1, None)


# -- any sequence of messages ----------------------------------------------------------------

UIDS = ("a", "b", "c")


def _pod(uid: str, deleting: int | None, phase: str) -> Pod:
    if uid == "a":
        return make_pod("api", uid, deleting=deleting, phase=phase)
    return make_static("same", uid, deleting=deleting)


uids = st.sampled_from(UIDS)
outcomes = st.sampled_from(
    [
        None,
        SyncOutcome(),
        SyncOutcome(error="x"),
        SyncOutcome(terminal=True),
        SyncOutcome(error="x", retry_at=1.0),
    ]
)
updates = st.builds(
    lambda kind, uid, deleting, phase, grace, quiet: UpdateArrived(
        PodUpdate(kind, pod=_pod(uid, deleting, phase), kill=KillOptions(grace_override=grace)),
        1.0,
        quiet,
    ),
    st.sampled_from(list(UpdateType)),
    uids,
    st.sampled_from([None, None, None, 0, 5, 40]),
    st.sampled_from(["", "", "", "Failed"]),
    st.sampled_from([None, 1, 7]),
    st.booleans(),
)
runtime_kills = st.builds(
    lambda uid: UpdateArrived(
        PodUpdate(UpdateType.KILL, runtime_pod=runtime_status(uid, name="x")), 1.0
    ),
    uids,
)
events = st.lists(
    st.one_of(
        updates,
        runtime_kills,
        st.builds(lambda uid, outcome: SyncEnded(uid, outcome, 2.0, 0.1), uids, outcomes),
        st.builds(lambda uid: TimerFired(uid, 3.0), uids),
        st.builds(lambda chosen: DesiredPods(chosen, 4.0), st.frozensets(uids)),
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(events)
def test_terminations_are_never_lost(sequence: list[Event]) -> None:
    machine = WorkerMachine()
    running: dict[str, Stage] = {}
    for event in sequence:
        before = dict(machine.records)
        if isinstance(event, SyncEnded):
            if event.uid not in running:
                continue
            del running[event.uid]
        for effect in machine.handle(event):
            if isinstance(effect, RunSync):
                assert effect.uid not in running, "two steps of one pod at once"
                running[effect.uid] = effect.stage
        for uid, record in machine.records.items():
            old = before.get(uid)
            assert record.running is running.get(uid)
            if old is not None and old.first_seen_at == record.first_seen_at:
                assert record.termination_requested or not old.termination_requested
                assert record.terminated_at is not None or old.terminated_at is None
                assert record.finished or not old.finished
                if old.grace is not None:
                    assert record.grace is not None
                    assert record.grace <= old.grace
            if record.termination_requested and record.running is None and not record.finished:
                assert record.active is not None
        names = [u for u in running if u != "a" and machine.records[u].started_at is not None]
        assert len(names) <= 1, "two static pods of one name at once"


@settings(max_examples=100)
@given(events)
def test_a_log_replays(sequence: list[Event]) -> None:
    first, second = WorkerMachine(), WorkerMachine()
    assert [first.handle(e) for e in sequence] == [second.handle(e) for e in sequence]
    assert first.records == second.records


@settings(max_examples=200)
@given(events)
def test_every_pod_ends(sequence: list[Event]) -> None:
    """Once no source has a pod, successful steps remove every record."""
    machine = WorkerMachine()
    for event in sequence:
        machine.handle(event)
    for _ in range(12):
        for uid in UIDS:
            record = machine.records.get(uid)
            if record is not None and record.running is not None:
                machine.handle(SyncEnded(uid, SyncOutcome(), 5.0))
        machine.handle(DesiredPods(frozenset(), 6.0))
    assert machine.records == {}

"""The rules by which pod workers live: events in, effects out (docs/reference/behaviour.md, b).

Pure.

Deterministic: no clock, no I/O, no task; randomness comes in with the events. Replaying a log of
events on a new machine gives the same records and the same effects. It must never lose or undo a
termination, run two syncs of one pod at once, or start a sync after the pod has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from kubeletpy.base.structs import replace
from kubeletpy.podworkers.messages import (
    is_urgent,
    merge_kill,
    new_record,
    next_work,
    request_termination,
)
from kubeletpy.podworkers.protocol import SyncOutcome, UpdateType
from kubeletpy.podworkers.records import (
    DesiredPods,
    Effect,
    Event,
    Finished,
    Forgotten,
    Interrupt,
    PodRejected,
    RefreshStatus,
    RunSync,
    ShowRejection,
    Stage,
    StatusOutdated,
    SyncEnded,
    Terminated,
    TimerFired,
    UpdateArrived,
    WakeAfter,
    WorkerRecord,
    WorkerSummary,
    event_uid,
)
from kubeletpy.podworkers.requeue import MIN_GRACE, RequeueSettings, effective_grace, requeue_delay
from kubeletpy.podworkers.static_names import StaticNames
from kubeletpy.podworkers.transitions import EventTrail, ImpossibleTransition, check_all, violation


class WorkerMachine:
    """The records of all workers, and what follows from each event."""

    validate: ClassVar[bool] = False
    """Whether all records are checked after each event, and ImpossibleTransition is raised; set by
    tests and simulations."""

    def __init__(
        self,
        settings: RequeueSettings | None = None,
        impossible: Callable[[ImpossibleTransition], None] = lambda error: None,
    ) -> None:
        """``impossible`` is called if the record of an event's pod can't follow from its last."""
        self.settings = settings or RequeueSettings()
        self.trail = EventTrail()
        self._impossible = impossible
        self.records: dict[str, WorkerRecord] = {}
        self.names = StaticNames()
        self.synced = False
        """Whether an orphan pass has been made: from then on, unknown pods are known not to run."""

    def handle(self, event: Event) -> list[Effect]:
        """Take one event, update the records, and return what is to be done, in order."""
        uid, everything = event_uid(event), dict(self.records) if self.validate else None
        before = self.records.get(uid)
        effects = self._handle(event)
        after = self.records.get(uid)
        if after is not None:
            self.trail.add(uid, event)
        if everything is not None:
            uid, why = check_all(everything, self.records)
            if why:
                raise ImpossibleTransition(uid, why, self.trail.last_events(uid))
        elif why := violation(before, after):
            self._impossible(ImpossibleTransition(uid, why, self.trail.last_events(uid)))
        return effects

    def _handle(self, event: Event) -> list[Effect]:
        match event:
            case UpdateArrived():
                return self._update(event)
            case SyncEnded():
                return self._step_ended(event)
            case TimerFired():
                return self._timer(event)
            case DesiredPods():
                return self._orphan_pass(event)
            case StatusOutdated():
                return self._refresh(event)
            case PodRejected(pod, rejection):
                record = self.records.get(pod.uid)
                if record is not None and record.termination_requested:
                    return []
                return [ShowRejection(pod, rejection)]

    def views(self, desired: frozenset[str]) -> dict[str, WorkerSummary]:
        """Every worker known, for the counts of housekeeping."""
        result = {}
        for uid, record in self.records.items():
            pod = record.pod
            result[uid] = WorkerSummary(
                stage=record.stage,
                orphan=uid not in desired,
                has_config=pod is not None,
                static=pod is not None and pod.is_static,
            )
        return result

    # -- a message ---------------------------------------------------------------------------

    def _update(self, event: UpdateArrived) -> list[Effect]:
        update, now = event.update, event.now
        named = update.pod or update.runtime_pod
        if named is None or (update.pod is None and update.type is not UpdateType.KILL):
            return []
        record = self.records.get(named.uid)
        if record is None:
            record = new_record(named.uid, f"{named.name}_{named.namespace}", event)
        elif record.termination_requested and update.type is UpdateType.CREATE:
            self.records[record.uid] = replace(record, restart_requested=True)
            return []
        runtime_only = update.pod is None
        if runtime_only:
            record = replace(record, observed_runtime=True)
        self.records[record.uid] = record
        if record.finished or (runtime_only and record.terminated_at is not None):
            return []
        pod = update.pod or record.pod
        before = record
        record = request_termination(record, update, now)
        if record.stage is Stage.TERMINATING:
            record = merge_kill(record, update.kill, pod)
        record = replace(record, pending=next_work(before, update, pod))
        self.records[record.uid] = record
        if pod is not None and pod.is_static and record.started_at is None:
            self.names.wait(record.full_name, record.uid)
        if record.running is not None:
            return [Interrupt(record.uid)] if is_urgent(before, record) else []
        return self._run_next(record.uid, now)

    # -- the next sync -----------------------------------------------------------------------

    def _run_next(self, uid: str, now: float) -> list[Effect]:
        record = self.records[uid]
        work = record.pending
        if record.running is not None or work is None:
            return []
        if record.started_at is None and work.pod is not None and work.pod.is_static:
            if record.termination_requested:
                return self._never_start(record, now)
            if not self._may_start_static(record):
                return []
        stage = record.stage
        active = work
        if record.active is not None and work.mirror is None:
            active = replace(work, mirror=record.active.mirror)
        self.records[uid] = replace(
            record,
            pending=None,
            active=active,
            running=stage,
            started_at=now if record.started_at is None and work.pod else record.started_at,
        )
        return [RunSync(uid, stage, work, record.grace or MIN_GRACE, record.status_override)]

    def _never_start(self, record: WorkerRecord, now: float) -> list[Effect]:
        self.records[record.uid] = replace(record, pending=None, finished=True, terminated_at=now)
        return [
            Terminated(record.uid),
            Finished(record.uid),
            *self._release_name(record, now),
        ]

    def _may_start_static(self, record: WorkerRecord) -> bool:
        return self.names.may_start(
            record.full_name,
            record.uid,
            alive=lambda uid: uid in self.records and not self.records[uid].termination_requested,
        )

    def _release_name(self, record: WorkerRecord, now: float) -> list[Effect]:
        """The pod releases its full name: the next static pod waiting for it may start."""
        effects: list[Effect] = []
        for uid in self.names.release(record.full_name, record.uid):
            effects += self._run_next(uid, now)
        return effects

    # -- the end of a sync -------------------------------------------------------------------

    def _step_ended(self, event: SyncEnded) -> list[Effect]:
        record = self.records.get(event.uid)
        if record is None or record.running is None:
            return []
        stage, record = record.running, replace(record, running=None)
        self.records[record.uid] = record
        outcome = event.outcome
        if outcome is None or outcome.error:
            return self._again(record, outcome, event)
        if stage is Stage.TERMINATED:
            self.records[record.uid] = replace(record, pending=None, finished=True)
            return [Finished(record.uid), *self._release_name(record, event.now)]
        if stage is Stage.TERMINATING:
            return self._terminated(record, event.now)
        if outcome.terminal:
            return self._terminal(record, outcome, event.now)
        return self._again(record, outcome, event)

    def _again(
        self, record: WorkerRecord, outcome: SyncOutcome | None, event: SyncEnded
    ) -> list[Effect]:
        if record.pending is not None:
            return self._run_next(record.uid, event.now)
        delay = requeue_delay(outcome, event.now, event.jitter, self.settings)
        return [WakeAfter(record.uid, delay)]

    def _terminal(self, record: WorkerRecord, outcome: SyncOutcome, now: float) -> list[Effect]:
        """The pod has run to its end by itself, or this node can't run it."""
        override = record.status_override or outcome.status_override
        record = replace(record, status_override=override)
        if not record.termination_requested and record.pod is not None:
            record = replace(
                record,
                terminating_at=now,
                grace=effective_grace(None, record.pod, None),
            )
        return self._requeue_last(record, now)

    def _terminated(self, record: WorkerRecord, now: float) -> list[Effect]:
        if record.active is None or record.active.pod is None:
            return [Terminated(record.uid), *self._forget(record, now)]
        record = replace(record, terminated_at=now, status_override=None)
        return [Terminated(record.uid), *self._requeue_last(record, now)]

    def _requeue_last(self, record: WorkerRecord, now: float) -> list[Effect]:
        if record.pending is None:
            record = replace(record, pending=record.active)
        self.records[record.uid] = record
        return self._run_next(record.uid, now)

    def _refresh(self, event: StatusOutdated) -> list[Effect]:
        """A pod has nothing to show before its first sync or after its end."""
        record = self.records.get(event.pod.uid)
        if record is None or record.started_at is None or record.terminated_at is not None:
            return []
        return [RefreshStatus(event.pod, event.mirror, record.status_override)]

    # -- time and housekeeping ---------------------------------------------------------------

    def _timer(self, event: TimerFired) -> list[Effect]:
        record = self.records.get(event.uid)
        if record is None or record.finished or record.running is not None:
            return []
        if record.stage is Stage.SYNC and record.active is not None and record.pending is None:
            pending = replace(record.active, type=UpdateType.SYNC, received_at=0.0)
            record = replace(record, pending=pending)
        return self._requeue_last(record, event.now)

    def _orphan_pass(self, event: DesiredPods) -> list[Effect]:
        self.synced = True
        effects: list[Effect] = []
        for uid in list(self.records):
            record = self.records.get(uid)
            if record is None:
                continue
            orphan = uid not in event.uids
            if orphan or (record.restart_requested and record.finished):
                effects += self._orphan(record, event.now)
        return effects

    def _orphan(self, record: WorkerRecord, now: float) -> list[Effect]:
        if record.finished:
            return self._forget(record, now)
        if record.started_at is None and not record.observed_runtime:
            return [Terminated(record.uid), *self._forget(record, now)]
        record = replace(record, deleted=True)
        self.records[record.uid] = record
        if record.termination_requested:
            return self._requeue_last(record, now) if record.running is None else []
        pod = record.active.pod if record.active else None
        grace = MIN_GRACE if pod is None else effective_grace(None, pod, None)
        record = replace(record, terminating_at=now, grace=grace)
        interrupt: list[Effect] = [Interrupt(record.uid)] if record.running is Stage.SYNC else []
        return interrupt + self._requeue_last(record, now)

    def _forget(self, record: WorkerRecord, now: float) -> list[Effect]:
        del self.records[record.uid]
        self.trail.forget(record.uid)
        return [Forgotten(record.uid), *self._release_name(record, now)]

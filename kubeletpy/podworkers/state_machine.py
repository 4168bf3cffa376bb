"""The rules by which pod workers live: events in, effects out (docs/reference/behaviour.md, b).

Pure. Deterministic: no clock, no I/O, no task; randomness comes in with the events. Replaying a log
of events on a new machine gives the same records and the same effects. It must never lose or undo a
termination, lengthen a grace period, run two syncs of one pod at once, or start a sync after
the pod has finished.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers import records
from kubeletpy.podworkers.records import KillOptions, PodUpdate, SyncOutcome, UpdateType

# -- full names of static pods (docs/reference/behaviour.md, b8) -----------------------------


class NamesInUse(Struct, frozen=True):
    """The uid that uses each full name, and the uids that wait for it, in order."""

    started: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)


NOBODY = NamesInUse()
"""No name is in use."""


class StaticNames(Component):
    """Assigns the full name of a static pod to one uid at a time: first come, first served.

    A changed manifest makes a new uid under the old full name; the new pod waits until the old one
    has ended.
    """

    names: NamesInUse = NOBODY

    def __post_init__(self) -> None:
        self._started = dict(self.names.started)
        self._waiting = {name: list(uids) for name, uids in self.names.waiting.items()}

    def in_use(self) -> NamesInUse:
        """The names in use and the queues as they are now."""
        waiting = {name: tuple(uids) for name, uids in self._waiting.items()}
        return NamesInUse(dict(self._started), waiting)

    def started(self, full_name: str) -> str | None:
        """The uid that uses a name."""
        return self._started.get(full_name)

    def wait(self, full_name: str, uid: str) -> None:
        """Queue for a name; queueing twice keeps the first position."""
        queue = self._waiting.setdefault(full_name, [])
        if uid not in queue:
            queue.append(uid)

    def may_start(self, full_name: str, uid: str, alive: Callable[[str], bool]) -> bool:
        """Take the name if it is free and no pod ahead in the queue still waits to start."""
        holder = self._started.get(full_name)
        if holder is not None:
            return holder == uid
        queue = [other for other in self._waiting.get(full_name, ()) if alive(other)]
        if queue and queue[0] != uid:
            self._waiting[full_name] = queue
            return False
        self._started[full_name] = uid
        self._set_queue(full_name, queue[1:])
        return True

    def release(self, full_name: str, uid: str) -> list[str]:
        """Give up the name, or the position in its queue; returns the uids that wait now."""
        if self._started.get(full_name) == uid:
            del self._started[full_name]
        queue = [other for other in self._waiting.get(full_name, ()) if other != uid]
        self._set_queue(full_name, queue)
        return [] if full_name in self._started else list(queue)

    def _set_queue(self, full_name: str, queue: list[str]) -> None:
        if queue:
            self._waiting[full_name] = queue
        else:
            self._waiting.pop(full_name, None)


# -- waits and grace periods (docs/reference/behaviour.md, b4, b6) ---------------------------

MIN_GRACE = 1
"""Seconds: every pod gets at least this."""
SHORTEST_WAIT = 0.001
AFTER_DUE = 0.1
"""Seconds until the next try when the time to retry had passed before the sync ended: a sync that
keeps requesting a time in the past must not spin."""
TICK_S = 2.0
"""Approximate seconds between the ticks of an agent. A core that wakes up for each pod alone finds
its caches cold (500 idle pods: 1.7 % of a core alone, 1.3 % together)."""


class RequeueSettings(Struct, frozen=True):
    """Seconds between syncs; all but the end of a backoff are stretched by a jitter of 1..1.5."""

    sync_frequency: float = 60.0
    error_backoff: float = 10.0
    network_backoff: float = 1.0
    tick: float = 0.0
    """Pods with nothing due are synced together, at multiples of this; 0: each by itself."""


def tick_of(node_name: str) -> float:
    """Seconds between the ticks of a node: a tenth more or less than TICK_S, by its name.

    Nodes whose clocks agree would otherwise send the API the reads of their syncs all at once.
    """
    return TICK_S * (0.9 + 0.2 * zlib.crc32(node_name.encode()) / 0xFFFFFFFF)


def effective_grace(current: int | None, pod: Pod, override: int | None) -> int:
    """Seconds a pod gets to end: the least that was requested, but at least MIN_GRACE.

    The spec counts only when nothing else was requested.
    """
    requested = [g for g in (current, pod.deletion_grace_period, override) if g is not None]
    return max(min(requested, default=pod.termination_grace_period), MIN_GRACE)


def requeue_delay(
    outcome: SyncOutcome | None, now: float, jitter: float, settings: RequeueSettings
) -> float:
    """Seconds until the next sync if nothing happens first."""
    delay = _without_deadline(outcome, now, jitter, settings)
    if outcome is None or outcome.deadline is None:
        return delay
    left = outcome.deadline - now
    return min(delay, max(left, SHORTEST_WAIT) if left > 0 else AFTER_DUE)


def _without_deadline(
    outcome: SyncOutcome | None, now: float, jitter: float, settings: RequeueSettings
) -> float:
    stretch = 1.0 + jitter
    backoff = min(settings.error_backoff, settings.sync_frequency) * stretch
    if outcome is None:
        return backoff
    if outcome.network_not_ready:
        return settings.network_backoff * stretch
    resync = _resync(settings, stretch, now)
    if outcome.retry_at is not None:
        # exactly then: a restart after a backoff has waited long enough already
        left = outcome.retry_at - now
        due = min(max(left, SHORTEST_WAIT) if left > 0 else AFTER_DUE, resync)
        if outcome.error and not outcome.waiting:
            # something else failed as well, which has no due time of its own
            return min(due, backoff)
        return due
    return backoff if outcome.error else resync


def _resync(settings: RequeueSettings, stretch: float, now: float) -> float:
    """On the last tick of the stretched time, which is 1..1.5 times the frequency anyway."""
    frequency = settings.sync_frequency
    tick = min(settings.tick, frequency / 2)
    if not tick:
        return frequency * stretch
    delay = (now + frequency * stretch) // tick * tick - now
    return delay if delay >= frequency else delay + tick


# -- how a message changes a record (docs/reference/behaviour.md, b2, b3, b4) ----------------

_NO_OPTIONS = KillOptions()


def new_record(uid: str, full_name: str, event: records.UpdateArrived) -> records.WorkerRecord:
    """The record of a pod that has no worker yet."""
    record = records.WorkerRecord(uid=uid, full_name=full_name, first_seen_at=event.now)
    pod = event.update.pod
    if pod is not None and pod.is_terminal_in_api and event.runtime_quiet:
        # it ended under an earlier run of the agent: only the finishing is left
        return replace(record, terminating_at=event.now, terminated_at=event.now)
    return record


def is_urgent(before: records.WorkerRecord, record: records.WorkerRecord) -> bool:
    """Whether to cut the sync in flight short: the pod is to end, or to end sooner."""
    if record.running is records.Stage.SYNC:
        return record.termination_requested and not before.termination_requested
    shorter = before.grace is not None and record.grace is not None and record.grace < before.grace
    return record.running is records.Stage.TERMINATING and shorter


def request_termination(
    record: records.WorkerRecord, update: PodUpdate, now: float
) -> records.WorkerRecord:
    """The record after a message, which may request the pod's end; ``now`` in Unix seconds.

    A message without a pod does: the pod is not known any more.
    """
    if record.termination_requested:
        return record
    if update.pod is None or update.pod.being_deleted:
        return replace(record, terminating_at=now, deleted=True)
    if update.pod.is_terminal_in_api:
        return replace(record, terminating_at=now)
    if update.type is UpdateType.KILL:
        evicted = update.kill is not None and update.kill.evict
        return replace(record, terminating_at=now, evicted=evicted)
    return record


def merge_kill(
    record: records.WorkerRecord, options: KillOptions | None, pod: Pod | None
) -> records.WorkerRecord:
    """The record of an ending pod with the shortest grace period that was requested."""
    options = options or _NO_OPTIONS
    if pod is None:
        requested = MIN_GRACE if options.grace_override is None else options.grace_override
        grace = max(min(requested, record.grace or requested), MIN_GRACE)
    else:
        grace = effective_grace(record.grace, pod, options.grace_override)
    override = options.status_override or record.status_override
    return replace(record, grace=grace, status_override=override)


def next_work(record: records.WorkerRecord, update: PodUpdate, pod: Pod | None) -> records.Work:
    """The input of the next sync: the newest message, with the age of the oldest that waits."""
    earliest = update.received_at
    if record.pending is not None and record.pending.received_at:
        earliest = min(earliest, record.pending.received_at) or record.pending.received_at
    mirror = update.mirror
    if mirror is None and update.pod is None and record.pending is not None:
        mirror = record.pending.mirror
    return records.Work(
        type=update.type,
        pod=pod,
        mirror=mirror,
        runtime_pod=update.runtime_pod if pod is None else None,
        received_at=earliest,
    )


def _complete_status(record: records.WorkerRecord, update: PodUpdate) -> list[records.Effect]:
    """An ended pod has more containers: its last status lacks those of them that ran.

    A pod that ends without an API server does so with the containers that are recorded. An
    ephemeral container that was added just before the node was cut off is not.
    """
    if record.terminated_at is None or record.pod is None or update.pod is None:
        return []
    known = {container["name"] for _, container in record.pod.all_containers()}
    named = {container["name"] for _, container in update.pod.all_containers()}
    return [] if named <= known else [records.CompleteStatus(update.pod)]


class WorkerMachine(Component):
    """The records of all workers, and what follows from each event."""

    validate: ClassVar[bool] = False
    """Whether all records are checked after each event, and ImpossibleTransition is raised; set by
    tests and simulations."""

    settings: RequeueSettings = field(default_factory=RequeueSettings)
    # Called if the record of an event's pod can't follow from its last.
    impossible: Callable[[records.ImpossibleTransition], None] = lambda error: None

    def __post_init__(self) -> None:
        self.trail = records.EventTrail()
        self.records: dict[str, records.WorkerRecord] = {}
        self.names = StaticNames()
        self.synced = False
        """Whether an orphan pass has been made: from then on, unknown pods are known not to run."""

    def handle(self, event: records.Event) -> list[records.Effect]:
        """Take one event, update the records, and return what is to be done, in order."""
        uid = records.event_uid(event)
        all_before = dict(self.records) if self.validate else None
        before = self.records.get(uid)
        effects = self._handle(event)
        after = self.records.get(uid)
        if after is not None:
            self.trail.add(uid, event)
        if all_before is not None:
            uid, why = records.check_all(all_before, self.records)
            if why:
                raise records.ImpossibleTransition(uid, why, self.trail.last_events(uid))
        elif why := records.violation(before, after):
            self.impossible(records.ImpossibleTransition(uid, why, self.trail.last_events(uid)))
        return effects

    def _handle(self, event: records.Event) -> list[records.Effect]:
        match event:
            case records.UpdateArrived():
                return self._update(event)
            case records.SyncEnded():
                return self._step_ended(event)
            case records.TimerFired():
                return self._timer(event)
            case records.DesiredPods():
                return self._orphan_pass(event)
            case records.StatusOutdated():
                return self._refresh(event)
            case records.PodRejected(pod, rejection):
                record = self.records.get(pod.uid)
                if record is not None and record.termination_requested:
                    return []
                return [records.ShowRejection(pod, rejection)]

    def views(self, desired: frozenset[str]) -> dict[str, records.WorkerSummary]:
        """Every worker known, for the counts of housekeeping."""
        result = {}
        for uid, record in self.records.items():
            pod = record.pod
            result[uid] = records.WorkerSummary(
                stage=record.stage,
                orphan=uid not in desired,
                has_config=pod is not None,
                static=pod is not None and pod.is_static,
            )
        return result

    # -- a message ---------------------------------------------------------------------------

    def _update(self, event: records.UpdateArrived) -> list[records.Effect]:
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
            return _complete_status(record, update)
        pod = update.pod or record.pod
        before = record
        record = request_termination(record, update, now)
        if record.stage is records.Stage.TERMINATING:
            record = merge_kill(record, update.kill, pod)
        record = replace(record, pending=next_work(before, update, pod))
        self.records[record.uid] = record
        if pod is not None and pod.is_static and record.started_at is None:
            self.names.wait(record.full_name, record.uid)
        if record.running is not None:
            if is_urgent(before, record):
                return [records.Interrupt(record.uid)]
            return _complete_status(before, update)
        return self._run_next(record.uid, now)

    # -- the next sync -----------------------------------------------------------------------

    def _run_next(self, uid: str, now: float) -> list[records.Effect]:
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
        return [
            records.RunSync(uid, stage, work, record.grace or MIN_GRACE, record.status_override)
        ]

    def _never_start(self, record: records.WorkerRecord, now: float) -> list[records.Effect]:
        self.records[record.uid] = replace(record, pending=None, finished=True, terminated_at=now)
        return [
            records.Terminated(record.uid),
            records.Finished(record.uid),
            *self._release_name(record, now),
        ]

    def _may_start_static(self, record: records.WorkerRecord) -> bool:
        return self.names.may_start(
            record.full_name,
            record.uid,
            alive=lambda uid: uid in self.records and not self.records[uid].termination_requested,
        )

    def _release_name(self, record: records.WorkerRecord, now: float) -> list[records.Effect]:
        """The pod releases its full name: the next static pod waiting for it may start."""
        effects: list[records.Effect] = []
        for uid in self.names.release(record.full_name, record.uid):
            effects += self._run_next(uid, now)
        return effects

    # -- the end of a sync -------------------------------------------------------------------

    def _step_ended(self, event: records.SyncEnded) -> list[records.Effect]:
        record = self.records.get(event.uid)
        if record is None or record.running is None:
            return []
        stage, record = record.running, replace(record, running=None)
        self.records[record.uid] = record
        outcome = event.outcome
        if outcome is None or outcome.error:
            return self._again(record, outcome, event)
        if stage is records.Stage.TERMINATED:
            self.records[record.uid] = replace(record, pending=None, finished=True)
            return [records.Finished(record.uid), *self._release_name(record, event.now)]
        if stage is records.Stage.TERMINATING:
            return self._terminated(record, event.now)
        if outcome.terminal:
            return self._terminal(record, outcome, event.now)
        return self._again(record, outcome, event)

    def _again(
        self, record: records.WorkerRecord, outcome: SyncOutcome | None, event: records.SyncEnded
    ) -> list[records.Effect]:
        if record.pending is not None:
            return self._run_next(record.uid, event.now)
        delay = requeue_delay(outcome, event.now, event.jitter, self.settings)
        return [records.WakeAfter(record.uid, delay)]

    def _terminal(
        self, record: records.WorkerRecord, outcome: SyncOutcome, now: float
    ) -> list[records.Effect]:
        """The pod has run to its end by itself, or this node can't run it."""
        override = record.status_override or outcome.status_override
        record = replace(record, status_override=override)
        if not record.termination_requested and record.pod is not None:
            record = replace(
                record, terminating_at=now, grace=effective_grace(None, record.pod, None)
            )
        return self._requeue_last(record, now)

    def _terminated(self, record: records.WorkerRecord, now: float) -> list[records.Effect]:
        if record.active is None or record.active.pod is None:
            return [records.Terminated(record.uid), *self._forget(record, now)]
        record = replace(record, terminated_at=now, status_override=None)
        return [records.Terminated(record.uid), *self._requeue_last(record, now)]

    def _requeue_last(self, record: records.WorkerRecord, now: float) -> list[records.Effect]:
        if record.pending is None:
            record = replace(record, pending=record.active)
        self.records[record.uid] = record
        return self._run_next(record.uid, now)

    def _refresh(self, event: records.StatusOutdated) -> list[records.Effect]:
        """A pod has nothing to show before its first sync or after its end."""
        record = self.records.get(event.pod.uid)
        if record is None or record.started_at is None or record.terminated_at is not None:
            return []
        return [records.RefreshStatus(event.pod, event.mirror, record.status_override)]

    # -- time and housekeeping ---------------------------------------------------------------

    def _timer(self, event: records.TimerFired) -> list[records.Effect]:
        record = self.records.get(event.uid)
        if record is None or record.finished or record.running is not None:
            return []
        if (
            record.stage is records.Stage.SYNC
            and record.active is not None
            and record.pending is None
        ):
            pending = replace(record.active, type=UpdateType.SYNC, received_at=0.0)
            record = replace(record, pending=pending)
        return self._requeue_last(record, event.now)

    def _orphan_pass(self, event: records.DesiredPods) -> list[records.Effect]:
        self.synced = True
        effects: list[records.Effect] = []
        for uid in list(self.records):
            record = self.records.get(uid)
            if record is None:
                continue
            orphan = uid not in event.uids
            if orphan or (record.restart_requested and record.finished):
                effects += self._orphan(record, event.now)
        return effects

    def _orphan(self, record: records.WorkerRecord, now: float) -> list[records.Effect]:
        if record.finished:
            return self._forget(record, now)
        if record.started_at is None and not record.observed_runtime:
            return [records.Terminated(record.uid), *self._forget(record, now)]
        record = replace(record, deleted=True)
        self.records[record.uid] = record
        if record.termination_requested:
            return self._requeue_last(record, now) if record.running is None else []
        pod = record.active.pod if record.active else None
        grace = MIN_GRACE if pod is None else effective_grace(None, pod, None)
        record = replace(record, terminating_at=now, grace=grace)
        interrupt: list[records.Effect] = (
            [records.Interrupt(record.uid)] if record.running is records.Stage.SYNC else []
        )
        return interrupt + self._requeue_last(record, now)

    def _forget(self, record: records.WorkerRecord, now: float) -> list[records.Effect]:
        del self.records[record.uid]
        self.trail.forget(record.uid)
        return [records.Forgotten(record.uid), *self._release_name(record, now)]


class WorkerQueries(Component):
    """Answers the rest of the agent from the records (docs/reference/behaviour.md, b9)."""

    machine: WorkerMachine

    def __post_init__(self) -> None:
        self._records: Mapping[str, records.WorkerRecord] = self.machine.records

    def record(self, uid: str) -> records.WorkerRecord | None:
        """The record of one pod's worker."""
        return self._records.get(uid)

    def all(self) -> Mapping[str, records.WorkerRecord]:
        """All records, by uid."""
        return self._records

    def could_have_running_containers(self, uid: str) -> bool:
        """Whether containers of the pod may run now or start."""
        record = self._records.get(uid)
        return not self.machine.synced if record is None else record.terminated_at is None

    def should_be_finished(self, uid: str) -> bool:
        """Whether the worker has done all its work."""
        record = self._records.get(uid)
        return self.machine.synced if record is None else record.finished

    def is_termination_requested(self, uid: str) -> bool:
        """Whether the pod is to end, or has ended."""
        record = self._records.get(uid)
        return record is not None and record.termination_requested

    def is_known_terminated(self, uid: str) -> bool:
        """Whether a worker has recorded that everything of the pod has stopped."""
        record = self._records.get(uid)
        return record is not None and record.terminated_at is not None

    def should_content_be_removed(self, uid: str) -> bool:
        """Whether dead containers and logs may go: the pod is deleted or evicted and has ended."""
        record = self._records.get(uid)
        if record is None:
            return self.machine.synced
        return record.terminated_at is not None and (record.evicted or record.deleted)

    def name_holder(self, full_name: str) -> str:
        """The uid that uses the full name of a static pod; empty: none does."""
        return self.machine.names.started(full_name) or ""

    def is_static_terminating(self, full_name: str) -> bool:
        """Whether a static pod of that full name is ending: its mirror is then still needed."""
        record = self._records.get(self.machine.names.started(full_name) or "")
        return record is not None and record.termination_requested and record.terminated_at is None

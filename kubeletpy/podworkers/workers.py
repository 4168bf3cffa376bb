"""The pod workers: carry out the effects of the state machine, one sync per pod at a time.

A task exists only while a sync runs. :mod:`kubeletpy.podworkers.state_machine` decides what is
next.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.errors import cause_of, exhausted
from kubeletpy.base.structs import Component, field, replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.pods import PodWorkerMetrics
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.podworkers import records
from kubeletpy.podworkers.history import DecisionHistory, LastSync, why_terminating
from kubeletpy.podworkers.records import KillOptions, PodUpdate, SyncOutcome, UpdateType
from kubeletpy.podworkers.state_machine import WorkerMachine, WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.resources.admission.checks import Rejection

log = logging.getLogger(__name__)


class KillWaits:
    """Waits for the termination of pods, by uid."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, uid: str, seconds: float) -> None:
        """Wait until the pod has terminated. Raises TimeoutError after that many seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, []).append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        finally:
            waiters = self._waiting.get(uid, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiting.pop(uid, None)

    def terminated(self, uid: str) -> None:
        """End all waits for this pod."""
        for waiter in self._waiting.pop(uid, ()):
            if not waiter.done():
                waiter.set_result(None)


class SyncNotes(Component):
    """Notes about syncs for people: decisions, how the last one ended, metrics.

    ``now`` is Unix seconds.
    """

    history: DecisionHistory
    metrics: PodWorkerMetrics

    def __post_init__(self) -> None:
        self.last: dict[str, LastSync] = {}
        """How the last sync of each pod ended."""
        self.troubles = self.history.troubles

    def begins(self, run: records.RunSync, record: records.WorkerRecord, now: float) -> None:
        """A sync begins: note how long its pod has waited, and why the pod ends, if it does."""
        if run.work.pod is not None and run.uid not in self.last:
            self.metrics.containers_per_pod_count.observe(len(run.work.pod.containers))
        if run.work.type is UpdateType.CREATE and run.work.received_at:
            self.metrics.pod_worker_start_duration.observe(_since(run))
        if run.stage is records.Stage.SYNC:
            self.troubles.no_end(run.uid)
        if run.stage is records.Stage.TERMINATING:
            if record.evicted or record.status_override is not None:
                # a deletion and a last exit have their times in the API
                self.troubles.ends(run.uid, record.terminating_at or now)
            self.history.add_once(run.uid, why_terminating(record, run.grace), now)

    def ended(self, run: records.RunSync, outcome: SyncOutcome | None, now: float) -> None:
        """A sync has ended; without an outcome it was cut short."""
        self.last[run.uid] = LastSync(run.stage, outcome, now)
        if outcome is None:
            return
        if outcome.error:
            self.troubles.failed(run.uid, now)
        decisions = list(outcome.decisions)
        if outcome.error and not outcome.waiting:
            decisions.append(Decision(f"{run.stage} failed", outcome.error, failed=True))
            syncing = run.stage is records.Stage.SYNC
            failed = run.work.type.value if syncing else run.stage.value
            self.metrics.pod_worker_errors.labels(failed).inc()
            log.debug(
                "sync failed", extra={"uid": run.uid, "step": outcome.step, "error": outcome.error}
            )
        self.history.add(run.uid, decisions, now)
        if run.work.received_at:
            finished = run.stage is records.Stage.TERMINATED and not outcome.error
            operation = "terminated" if finished else run.work.type.value
            self.metrics.pod_worker_duration.labels(operation).observe(_since(run))

    def removed(self, uid: str) -> None:
        """The worker is done with a pod; its decisions stay for a while."""
        self.last.pop(uid, None)
        self.troubles.removed(uid)


def _since(run: records.RunSync) -> float:
    return asyncio.get_running_loop().time() - run.work.received_at


MIN_KILL_WAIT = 10
"""Seconds that kill_pod waits at the least (docs/reference/behaviour.md, b10)."""
CLOSE_WAIT = 2.0
"""Seconds that close() waits for syncs to give up."""

CurrentPod = Callable[[str], tuple[Pod, Pod | None] | None]
"""The newest object of a pod and its mirror, by uid; None when it is not in the configuration."""


def log_impossible(error: records.ImpossibleTransition) -> None:
    """Report a fault of the state machine; the pod goes on."""
    extra = {"uid": error.uid, "why": error.why, "events": error.events}
    log.error("impossible transition of a pod worker, please report it", extra=extra)


class PodWorkers(Component):
    """One worker per pod, and their interface to the rest of the agent."""

    machine: WorkerMachine
    syncer: KubePodSyncer
    # Reports about pods between syncs.
    statuses: StatusComposer
    cache: PodStatusCache
    recorder: EventRecorder
    clock: Clock
    metrics: PodWorkerMetrics
    rng: random.Random = field(default_factory=random.Random)
    current_pod: CurrentPod = lambda uid: None
    # Returns the pod with its allocated resources: all that syncs ever see.
    allocated: Callable[[Pod], Pod] = lambda pod: pod
    history: DecisionHistory = field(default_factory=DecisionHistory)
    traces: Traces = field(default_factory=Traces)
    # Called with the UID when a worker is done with a pod or forgets it.
    on_finished: Callable[[str], None] = lambda uid: None
    # Called with the pod of each message, with its allocated resources.
    on_update: Callable[[Pod], None] = lambda pod: None
    # Called with every event of the state machine and its effects, for replays.
    event_log: Callable[[records.Event, Sequence[records.Effect]], None] | None = None

    def __post_init__(self) -> None:
        self._queries = WorkerQueries(self.machine)
        self.notes = SyncNotes(self.history, self.metrics)
        self._tasks: dict[str, asyncio.Task[SyncOutcome]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._kill_waits = KillWaits()
        self._changed: set[str] = set()
        """Pods whose runtime status changed while a sync ran."""
        self._closed = False

    # -- messages ----------------------------------------------------------------------------

    def update_pod(self, update: PodUpdate) -> None:
        """Leave a message for a pod's worker; starts the worker if there is none. Never blocks."""
        if update.pod is not None and (allocated := self.allocated(update.pod)) is not update.pod:
            update = replace(update, pod=allocated)
        named = update.pod or update.runtime_pod
        quiet = named is not None and self.cache.quiet(named.uid)
        self._handle(records.UpdateArrived(update, self.clock.now(), runtime_quiet=quiet))
        if update.pod is not None:
            self.on_update(update.pod)

    def refresh_status(self, uid: str) -> None:
        """Something that a pod's status is made of has changed (a probe has settled): show it at
        once, whatever the worker is busy with."""
        if (current := self.current_pod(uid)) is not None:
            pod, mirror = current
            self._handle(records.StatusOutdated(self.allocated(pod), mirror))

    def reject(self, pod: Pod, rejection: Rejection) -> None:
        """Report that the node refuses to run a pod. Never starts a worker."""
        self._handle(records.PodRejected(pod, rejection))

    def runtime_changed(self, uid: str) -> None:
        """The cache has a new status of a pod, not from the pod's own worker: sync it.

        A change that a sync in flight finds itself causes no second sync.
        """
        record = self.machine.records.get(uid)
        if record is None or record.finished:
            return
        if record.running is not None:
            self._changed.add(uid)
        else:
            self._wake(uid)

    async def kill_pod(self, pod: Pod, options: KillOptions) -> None:
        """Kill and wait until the pod has terminated.

        Raises TimeoutError after max(10 s, 1.5 x grace); the kill goes on.
        """
        grace = options.grace_override
        grace = pod.termination_grace_period if grace is None else grace
        self.update_pod(PodUpdate(UpdateType.KILL, pod=pod, kill=options))
        record = self.machine.records.get(pod.uid)
        if record is None or record.terminated_at is not None:
            return
        try:
            await self._kill_waits.wait(pod.uid, max(grace + grace // 2, MIN_KILL_WAIT))
        except TimeoutError:
            self.recorder.event(
                pod_reference(pod),
                WARNING,
                Reason.EXCEEDED_GRACE_PERIOD,
                "Container runtime did not kill the pod within specified grace period.",
            )
            raise

    def orphan_pass(self, desired: frozenset[str]) -> dict[str, records.WorkerSummary]:
        """Terminate what is no longer desired; returns all workers by uid, for housekeeping."""
        self._handle(records.DesiredPods(desired, self.clock.now()))
        return self.machine.views(desired)

    @property
    def busy(self) -> int:
        """How many syncs are running."""
        return len(self._tasks)

    def decided(self, uid: str, decisions: Iterable[Decision]) -> None:
        """Keep decisions of a sync that is still running."""
        self.notes.history.add(uid, decisions, self.clock.now())

    def next_sync_in(self, uid: str) -> float | None:
        """Seconds until a pod's next scheduled sync; None when none is set."""
        timer = self._timers.get(uid)
        return None if timer is None else timer.when() - asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Stop at once and leave the pods running; syncs in flight are given up."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_WAIT)

    # -- effects -----------------------------------------------------------------------------

    def _handle(self, event: records.Event) -> None:
        if self._closed:
            return
        effects = self.machine.handle(event)
        if self.event_log is not None:
            self.event_log(event, effects)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: records.Effect) -> None:
        match effect:
            case records.RunSync():
                self._start(effect)
            case records.Interrupt(uid):
                if (task := self._tasks.get(uid)) is not None:
                    task.cancel()
            case records.WakeAfter(uid, delay):
                self._cancel_timer(uid)
                loop = asyncio.get_running_loop()
                self._timers[uid] = loop.call_later(delay, self._due, uid)
            case records.RefreshStatus(pod, mirror, override):
                self.statuses.refresh(pod, mirror, override)
            case records.CompleteStatus(pod):
                self.statuses.complete(pod)
            case records.ShowRejection(pod, rejection):
                why = f"{rejection.reason}: {rejection.message}"
                self.decided(pod.uid, (Decision("refuse the pod", why, cause=rejection.cause),))
                self.notes.troubles.ends(pod.uid, self.clock.now())
                self.traces.refused(pod.uid, pod.namespace, pod.name, why)
                self.statuses.reject(pod, rejection)
            case records.Terminated(uid):
                self._kill_waits.terminated(uid)
            case records.Finished(uid) | records.Forgotten(uid):
                self._cancel_timer(uid)
                self._changed.discard(uid)
                if isinstance(effect, records.Forgotten):
                    self.notes.troubles.no_end(uid)
                self.notes.removed(uid)
                self.traces.removed(uid)
                self.cache.confirm_absent(uid)
                self.on_finished(uid)

    def _cancel_timer(self, uid: str) -> None:
        if (timer := self._timers.pop(uid, None)) is not None:
            timer.cancel()

    def _due(self, uid: str) -> None:
        self._timers.pop(uid, None)
        self._wake(uid)

    def _wake(self, uid: str) -> None:
        """Run a sync with the newest object from the configuration, else with the last one."""
        current = self.current_pod(uid)
        if current is None or self._queries.is_termination_requested(uid):
            self._handle(records.TimerFired(uid, self.clock.now()))
            return
        pod, mirror = current
        now = asyncio.get_running_loop().time()
        self.update_pod(PodUpdate(UpdateType.SYNC, pod=pod, mirror=mirror, received_at=now))

    # -- one sync ----------------------------------------------------------------------------

    def _start(self, run: records.RunSync) -> None:
        self._cancel_timer(run.uid)
        self._changed.discard(run.uid)
        self.notes.begins(run, self.machine.records[run.uid], self.clock.now())
        task = asyncio.get_running_loop().create_task(
            self.syncer.run(run, lambda: self._ends(run.uid)), name=f"pod-worker {run.uid}"
        )
        self._tasks[run.uid] = task
        task.add_done_callback(lambda done: self._done(run, done))

    def _ends(self, uid: str) -> bool:
        return self._closed or self._queries.is_termination_requested(uid)

    def _done(self, run: records.RunSync, task: asyncio.Task[SyncOutcome]) -> None:
        del self._tasks[run.uid]
        if self._closed:
            return
        now = self.clock.now()
        outcome: SyncOutcome | None = None
        if task.cancelled():
            self.cache.invalidate(run.uid)
        elif (error := task.exception()) is None:
            outcome = task.result()
        else:
            # a task boundary: a fault in one pod's sync must not end the agent or the pod
            self.cache.invalidate(run.uid)
            cause = exhausted(error)
            text = str(cause or f"{type(error).__name__}: {error}")
            outcome = SyncOutcome(error=text, cause=cause_of(error))
            named = run.work.pod or run.work.runtime_pod
            pod = "" if named is None else f"{named.namespace}/{named.name}"
            events = self.machine.trail.last_events(run.uid)
            extra = {"pod": pod, "uid": run.uid, "events": events}
            log.error("sync of pod failed", extra=extra, exc_info=error)
        self.notes.ended(run, outcome, now)
        jitter = self.rng.uniform(0.0, 0.5)
        self._handle(records.SyncEnded(run.uid, outcome, now, jitter))
        self._wake_if_changed(run.uid)

    def _wake_if_changed(self, uid: str) -> None:
        """A change seen during the sync: new to the worker unless its own status came later."""
        if uid not in self._changed or uid in self._tasks:
            return
        self._changed.discard(uid)
        entry = self.cache.get(uid)
        record = self.machine.records.get(uid)
        if record is None or record.finished or (entry is not None and entry.own):
            return
        self._wake(uid)

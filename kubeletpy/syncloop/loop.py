"""The sync loop: passes everything that happens to the pods' workers.

Sources deliver, the PLEG and the probes notify, worker timers fire by themselves, and housekeeping
runs periodically. Handlers never wait: they leave a message for a worker. Nothing is killed before
all sources have delivered. Source: docs/reference/behaviour.md, a3, a4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks, wait_within
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.pods.pod import SOURCE_API, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.podworkers.records import PodUpdate, UpdateType
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.resources.admission.handlers import seniority
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.syncloop.admission_gate import Admit, Admitting
from kubeletpy.syncloop.housekeeping import DeadContainers, Housekeeping, UnreadPods
from kubeletpy.syncloop.lifecycle import ActivePods, LifecycleEvent, LifecycleType, worth_waking
from kubeletpy.syncloop.merge import Merge, MergedDelivery, Op, object_uid
from kubeletpy.syncloop.sources.manifest import ReadySources, priority_warning

log = logging.getLogger(__name__)

FIRST_WAIT = 0.1
LAST_WAIT = 5.0
"""Seconds between two checks of the error, doubled; :meth:`Pause.recheck` cuts a wait short."""
QUIET = 1.0
"""Seconds of waiting that are not reported: each start waits for the runtime's first status."""

Resume = Callable[[dict[str, Sequence[api.Pod]], Iterable[str]], None]


class Pause(Component):
    """Holds the inputs while the runtime can't be used (docs/reference/behaviour.md, a3).

    Only the newest full set of each source and the uids of changed pods are kept, however long the
    outage lasts. Workers go on by themselves: a pod that terminates still ends, as far as the
    runtime permits it.
    """

    merge: Merge
    # Inputs are held while this returns a reason.
    error: Callable[[], str]
    # Gets the inputs that were held.
    resume: Resume

    def __post_init__(self) -> None:
        self._sets: dict[str, dict[str, api.Pod]] = {}
        self._changed: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._recheck = asyncio.Event()

    def hold_set(self, source: str, objects: Sequence[api.Pod]) -> bool:
        """Keep a full set if inputs are held; returns whether they are."""
        if not self._holding():
            return False
        self._sets[source] = {
            object_uid(obj) or f"malformed {index}": obj for index, obj in enumerate(objects)
        }
        return True

    def hold_event(self, source: str, event_type: str, obj: api.Pod) -> bool:
        """Keep one change if inputs are held; returns whether they are."""
        if not self._holding():
            return False
        if source not in self._sets:
            self._sets[source] = dict(self.merge.delivered(source))
        key = object_uid(obj) or "malformed 0"
        if event_type == "DELETED":
            self._sets[source].pop(key, None)
        else:
            self._sets[source][key] = obj
        return True

    def hold_change(self, uid: str) -> bool:
        """Queue a pod for later if inputs are held; returns whether they are."""
        if not self._holding():
            return False
        self._changed[uid] = None
        return True

    def recheck(self) -> None:
        """Check the error now: it may have changed."""
        self._recheck.set()

    async def close(self) -> None:
        """Stop waiting for the runtime."""
        await cancel_tasks((self._task,))

    def _holding(self) -> bool:
        if self._task is not None:
            return True
        if not self.error():
            return False
        self._task = asyncio.get_running_loop().create_task(self._wait())
        return True

    async def _wait(self) -> None:
        now = asyncio.get_running_loop().time
        delay, begun, reported = FIRST_WAIT, now(), False
        while error := self.error():
            if now() - begun >= QUIET and not reported:
                log.warning("syncing pods is paused", extra={"error": error})
                reported = True
            self._recheck.clear()
            await wait_within(self._recheck, delay)
            delay = min(delay * 2, LAST_WAIT)
        if reported:
            log.info("syncing pods resumed")
        sets, changed = self._sets, self._changed
        self._sets, self._changed, self._task = {}, {}, None
        self.resume({source: list(objects.values()) for source, objects in sets.items()}, changed)


HOUSEKEEPING_PERIOD = 2.0


class SyncLoop(Component):
    """Dispatches to the workers. All methods but ``run`` return at once."""

    # All must deliver before anything is killed.
    sources: ReadySources
    merge: Merge
    # The pods that ``merge`` could not read.
    unread: UnreadPods
    pods: PodManager
    active: ActivePods
    workers: PodWorkers
    queries: WorkerQueries
    cache: PodStatusCache
    housekeeping: Housekeeping
    dead_containers: DeadContainers
    recorder: EventRecorder
    clock: Clock
    admit: Admit
    # The allocated resources of pods.
    allocations: AllocationManager
    # Called with the pod that runs whenever its object in the API has changed (for a mirror: the
    # static pod), after the pod manager has it.
    on_api_object: Callable[[Pod], None]
    # Called with a pod of the configuration before and after a change of its spec.
    on_updated: Callable[[Pod, Pod], None]
    # Called with each pod that is admitted.
    on_admitted: Callable[[Pod], None]
    # Why the runtime can't be used now; the inputs wait while there is a reason.
    runtime_error: Callable[[], str]
    # Called with each source whose pods have been merged.
    on_merged: Callable[[str], None] | None = None
    # Called with each pod whose admission takes a while.
    show_held: Callable[[Pod], None] = lambda pod: None

    def __post_init__(self) -> None:
        self._admitting = Admitting(
            self.admit,
            self.allocations,
            self.recorder,
            reject=self.workers.reject,
            active=self.active,
            current=self.pods.get,
            start=self._admitted,
            show_held=self.show_held,
            on_admitted=self.on_admitted,
        )
        self._held = self._admitting.held
        self._pause = Pause(self.merge, self.runtime_error, self._resume)
        self._soon = asyncio.Event()
        self.last_pass_at: float | None = None
        """Event-loop seconds of the last housekeeping pass."""

    # -- inputs ------------------------------------------------------------------------------

    def deliver(self, source: str, objects: Sequence[api.Pod]) -> None:
        """A source delivers its full set."""
        objects = [obj for obj in objects if self._is_ours(obj)]
        if self._pause.hold_set(source, objects):
            return
        self._dispatch(source, self.merge.set_pods(source, objects, self.clock.now()))

    def deliver_event(self, source: str, event_type: str, obj: api.Pod) -> None:
        """A source delivers one change (ADDED, MODIFIED, DELETED)."""
        if event_type != "DELETED" and not self._is_ours(obj):
            return
        if self._pause.hold_event(source, event_type, obj):
            return
        merged = self.merge.apply_event(source, event_type, obj, self.clock.now())
        self._dispatch(source, merged)

    def unreadable(self, source: str, uid: str, problem: str) -> None:
        """A source's data for a pod became unreadable: the pod keeps its last good version."""
        if (pod := self.merge.pods(source).get(uid)) is not None:
            self._report_invalid(pod, f"Error validating pod {pod.description} from {problem}")

    def runtime_changed(self, uid: str, events: Sequence[LifecycleEvent]) -> None:
        """The PLEG saw something happen to a pod; the cache has its new status."""
        for event in events:
            if event.type is LifecycleType.DIED:
                self.dead_containers.died(uid, event.container_id)
        if events and not worth_waking(events):
            return
        if not self._pause.hold_change(uid):
            self.workers.runtime_changed(uid)

    def runtime_health_changed(self) -> None:
        """The runtime may have become usable or unusable."""
        self._pause.recheck()

    def probe_settled(self, uid: str, kind: ProbeKind, result: ProbeOutcome) -> None:
        """Handle a new result of a probe. Ready and started are shown at once, even while the
        worker is busy; a failed liveness probe waits for the pod's next sync."""
        if kind is not ProbeKind.LIVENESS:
            self.workers.refresh_status(uid)
        elif result is not ProbeOutcome.FAILURE:
            return
        self.sync_pod(uid)

    def show_readiness(self) -> None:
        """The node is about to go down, or no longer is: all pods are Ready no more, or again."""
        for pod in self.pods.pods():
            self.workers.refresh_status(pod.uid)

    def sync_pod(self, uid: str) -> None:
        """Something that a pod's sync depends on changed (a configMap, a token)."""
        current = self.pods.current(uid)
        if current is not None:
            self._send(UpdateType.SYNC, *current)

    async def sync_static_pods(self) -> None:
        """The node object exists: mirrors can be made now."""
        self.node_replaced()

    def node_replaced(self) -> None:
        """The node object was created anew: mirrors of static pods can be made again."""
        for pod in self.pods.pods():
            if pod.is_static:
                self.sync_pod(pod.uid)

    def housekeeping_soon(self, uid: str = "") -> None:
        """Make the next pass at once: a worker is done with a pod that a source still has."""
        current = self.pods.current(uid)
        if not uid or current is not None:
            self._soon.set()
        if current is not None:
            pod, mirror = current
            self._drop_evicted(mirror or pod, uid)

    def awaits_admission(self, uid: str) -> bool:
        """Whether it is still undecided if a pod may run here."""
        return uid in self._held.waiting

    def admitted_pods(self, but: str = "") -> list[Pod]:
        """The admitted pods that use the node, as they are allocated, except one (by uid)."""
        return [pod for pod in self._admitting.admitted_pods() if pod.uid != but]

    async def run(self) -> None:
        """Make housekeeping passes until cancelled."""
        try:
            while True:
                if self.sources.all() and self.cache.populated:
                    self.last_pass_at = asyncio.get_running_loop().time()
                    unsettled = self._held.waiting | self.unread.uids()
                    self.housekeeping.run_once(self.last_pass_at, unsettled)
                await self._wait()
        finally:
            await self._pause.close()
            await self._held.close()
            self.allocations.close()

    async def _wait(self) -> None:
        # a burst of finished pods is one pass, not one each
        await asyncio.sleep(HOUSEKEEPING_PERIOD / 20)
        await wait_within(self._soon, HOUSEKEEPING_PERIOD)
        self._soon.clear()

    def _resume(self, sets: dict[str, Sequence[api.Pod]], changed: Iterable[str]) -> None:
        for source, objects in sets.items():
            self.deliver(source, objects)
        for uid in changed:
            self.workers.runtime_changed(uid)

    # -- handlers ----------------------------------------------------------------------------

    def _is_ours(self, obj: api.Pod) -> bool:
        if (other := self.merge.elsewhere(obj)) is None:
            return True
        log.warning("ignoring a pod that is not bound to this node", extra=dict(other))
        return False

    def _dispatch(self, source: str, merged: MergedDelivery) -> None:
        for problem in merged.malformed:
            log.error("pod left out", extra={"problem": problem})
        for refused in merged.refused:
            self._report_invalid(refused.pod, refused.message)
        if self.merge.has_delivered(source):
            self.sources.has_spoken(source)
        handlers = {
            Op.ADD: self._added,
            Op.UPDATE: self._updated,
            Op.DELETE: self._updated,
            Op.REMOVE: self._removed,
            Op.RECONCILE: self._reconciled,
        }
        for operation in merged.operations:
            handlers[operation.op](operation.pods)
        if self.on_merged is not None:
            self.on_merged(source)
        if self._soon_needed(merged):
            self._soon.set()

    def _report_invalid(self, pod: Pod, message: str) -> None:
        log.error("an invalid pod was ignored", extra={"pod": pod.key, "problem": message})
        self.recorder.event(pod_reference(pod), WARNING, Reason.FAILED_VALIDATION, message)

    def _soon_needed(self, merged: MergedDelivery) -> bool:
        """The first full set, or a pod that left: something may have to be ended."""
        removed = any(operation.op is Op.REMOVE for operation in merged.operations)
        return self.sources.all() and (removed or self.last_pass_at is None)

    def _added(self, pods: Sequence[Pod]) -> None:
        started = []
        for pod in sorted(pods, key=seniority):
            self.pods.put(pod)
            resolved = self.pods.resolve(pod)
            if resolved.pod is None:
                continue
            if resolved.was_mirror:  # readiness is only shown there
                self.workers.refresh_status(resolved.pod.uid)
            self._pass_api_object(pod, resolved.pod)
            if pod.is_static and (warning := priority_warning(pod)):
                log.warning("priority of a static pod", extra={"pod": pod.key, "why": warning})
            if resolved.was_mirror:
                self._send(UpdateType.UPDATE, resolved.pod, resolved.mirror)
            elif self._may_start(pod):
                self._send(UpdateType.CREATE, pod, resolved.mirror)
                started.append(pod)
        self.allocations.added(started)

    def _may_start(self, pod: Pod) -> bool:
        if self.queries.is_termination_requested(pod.uid) or pod.is_terminal_in_api:
            return True
        return self._admitting.may_start(pod)

    def _admitted(self, uid: str) -> None:
        if (current := self.pods.current(uid)) is not None:
            self._send(UpdateType.CREATE, *current)

    def _updated(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            old = self.pods.get(pod.uid)
            self.pods.put(pod)
            resolved = self.pods.resolve(pod)
            if resolved.pod is not None:
                self._pass_api_object(pod, resolved.pod)
                if not resolved.was_mirror and not self._held.holds(pod.uid):
                    self.allocations.updated(old, pod)
                    if old is not None:
                        self.on_updated(old, pod)
                self._send(UpdateType.UPDATE, resolved.pod, resolved.mirror)

    def _removed(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            self.pods.remove(pod)
            self._held.forget(pod.uid)
            if pod.is_mirror:
                static = self.pods.static_of(pod)
                if static is not None:
                    self._send(UpdateType.UPDATE, static, None)
            elif self.sources.all():
                self._send(UpdateType.KILL, pod, None)
        self.allocations.removed(pod.uid for pod in pods)

    def _reconciled(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            old = self.pods.get(pod.uid)
            self.pods.put(pod)
            resolved = self.pods.resolve(pod)
            if resolved.pod is None:
                continue
            self._pass_api_object(pod, resolved.pod)
            self.allocations.reconciled(old, pod)
            if resolved.pod.spec.get("readinessGates"):
                self._send(UpdateType.SYNC, resolved.pod, resolved.mirror)
            self._drop_evicted(pod, resolved.pod.uid)

    def _drop_evicted(self, reported: Pod, uid: str) -> None:
        """Remove an evicted pod's dead containers once the API shows how they ended.

        The API may show it before this agent has started: then no change of the object follows.
        """
        if reported.status.get("phase") == "Failed" and reported.status.get("reason") == "Evicted":
            self.dead_containers.remove_all(uid)

    def _pass_api_object(self, changed: Pod, pod: Pod) -> None:
        if changed.source == SOURCE_API:
            self.on_api_object(pod)

    def _send(self, kind: UpdateType, pod: Pod, mirror: Pod | None) -> None:
        if pod.being_deleted:
            self._held.forget(pod.uid)
        elif kind is not UpdateType.KILL and self._held.holds(pod.uid):
            return
        now = asyncio.get_running_loop().time()
        self.workers.update_pod(PodUpdate(kind, pod=pod, mirror=mirror, received_at=now))

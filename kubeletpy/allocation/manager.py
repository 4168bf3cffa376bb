"""Keeps what each pod has been given, and gives more (or less) when that is asked for and fits.

A pod's worker only ever sees the pod as it is allocated. A change of the spec's resources is a
resize that waits here until it is allocated; then the worker carries it out, and tells how that
went. What can never be is reported and dropped; what only lacks room is tried again whenever room
may have come. Source: docs/reference/behaviour.md, c10; KEP-1287. Must never wait, nor decide what
admission, feasibility and order decide (they are pure, and beside it).

What a pod is given is written down when it is admitted, unless it asks for no cpu or memory at all:
such a pod can never be resized. Nothing less would do: a pod whose spec was changed while the agent
was away must not be judged, let alone refused, by what it asks for now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from kubeletpy.admission.verdict import Rejection
from kubeletpy.allocation import conditions
from kubeletpy.allocation.asked import asks, pod_level_changes
from kubeletpy.allocation.checkpoint import ResourceState
from kubeletpy.allocation.conditions import NONE, ResizeConditions
from kubeletpy.allocation.feasibility import ResizeRules, infeasible
from kubeletpy.allocation.from_status import reported_resources
from kubeletpy.allocation.queue import Waiting, in_order
from kubeletpy.allocation.reports import Decided, ResizeReports
from kubeletpy.allocation.resources import PodResources, asks_for_nothing, of_pod, with_resources
from kubeletpy.api import types as api
from kubeletpy.clock import Clock
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.resizes import ResizeMetrics
from kubeletpy.pods.in_force import in_force
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, pod_requests
from kubeletpy.pods.sync_results import ResizeOutcome

log = logging.getLogger(__name__)

FIRST_RETRY_S = 30.0
"""While not all sources have spoken."""
RETRY_S = 180.0

PODS_ADDED = "pods_added"
POD_UPDATED = "pod_updated"
PODS_REMOVED = "pods_removed"
POD_TERMINATED = "pod_terminated"
POD_RESIZED = "pod_resized"
PERIODIC = "periodic_retry"


class AllocationManager:
    """Use it inside the event loop only; every method returns at once."""

    def __init__(
        self,
        state: ResourceState,
        recorder: EventRecorder,
        clock: Clock,
        *,
        rules: ResizeRules | None = None,
        metrics: ResizeMetrics | None = None,
        judge: Callable[[Pod], Rejection | None] = lambda pod: None,
        current: Callable[[str], Pod | None] = lambda uid: None,
        sync: Callable[[str], None] = lambda uid: None,
        sources_ready: Callable[[], bool] = lambda: True,
        decided: Decided = lambda uid, decisions: None,
    ) -> None:
        """Args:
        state: what is allocated, across restarts.
        judge: why a pod would not fit beside the others as they are allocated; None: it fits.
        current: the newest object of a pod in the configuration.
        sync: wakes a pod's worker.
        sources_ready: whether all sources have spoken: before, nothing is given away.
        decided: called with what was decided about a pod.
        """
        self._state = state
        self._rules = rules or ResizeRules()
        self._metrics = metrics or ResizeMetrics(Families())
        self._reports = ResizeReports(recorder, clock, self._metrics, decided)
        self._judge = judge
        self._current = current
        self._sync = sync
        self._sources_ready = sources_ready
        self._queue: dict[str, None] = {}
        """Uids of pods whose resize is to be tried, in the order in which they came."""
        self._timer: asyncio.TimerHandle | None = None
        self._views: dict[str, tuple[api.Pod, PodResources, Pod]] = {}

    # -- what is allocated -------------------------------------------------------------------

    def allocated(self, pod: Pod) -> Pod:
        """The pod as it is to be run: with the cpu and memory that it has been given."""
        given = self._state.find(pod.uid)
        if given is None:
            return pod
        kept = self._views.get(pod.uid)
        if kept is not None and kept[0] is pod.object and kept[1] is given:
            return kept[2]
        view = with_resources(pod, given)
        self._views[pod.uid] = (pod.object, given, view)
        return view

    def admitting(self, pod: Pod) -> Pod:
        """The pod as it is to be admitted: as it was before, if this node has run it already."""
        if self._state.find(pod.uid) is None and not self._state.complete:
            reported = reported_resources(pod)
            if with_resources(pod, reported) is not pod:
                self._state.put(pod.uid, reported)
        return self.allocated(pod)

    def admitted(self, pod: Pod) -> None:
        """A pod may run with what it asks for now, unless it has been given something before."""
        if self._state.find(pod.uid) is None and not asks_for_nothing(pod):
            self._state.put(pod.uid, of_pod(pod))

    def refused(self, uid: str) -> None:
        """A pod may not run."""
        self._forget(uid)

    # -- what happens to pods ----------------------------------------------------------------

    def added(self, pods: Iterable[Pod]) -> None:
        """Pods of a source were taken on, all of them, by their admission."""
        found = False
        for pod in pods:
            shown = conditions.from_status(pod.status.get("conditions"))
            waits = not self._has_what_it_asks(pod)
            if shown != NONE:
                # without a resize that waits, it was allocated before that could be reported to
                # the API
                pending = shown.pending if waits else None
                self._reports.take_over(pod.uid, ResizeConditions(pending, shown.in_progress))
            if waits:
                self._queue[pod.uid] = None
                found = True
        if found:
            self.retry(PODS_ADDED)

    def updated(self, old: Pod | None, new: Pod) -> None:
        """A pod's object has changed. The caller wakes the pod's worker anyway."""
        if old is not None and not self._is_resize(old, new):
            return
        if self._has_what_it_asks(new):
            self._queue.pop(new.uid, None)
            self._reports.not_pending(new.uid)
        else:
            self._queue[new.uid] = None
            self.retry(POD_UPDATED, woken=new.uid)

    def removed(self, uids: Iterable[str]) -> None:
        """Pods are not wanted any more."""
        for uid in uids:
            self._forget(uid)
        self.retry(PODS_REMOVED)

    def reconciled(self, old: Pod | None, new: Pod) -> None:
        """The API shows another status of a pod: it may have ended, or take less than before."""
        if not self._queue or old is None:
            return
        if new.is_terminal_in_api and not old.is_terminal_in_api:
            self.retry(POD_TERMINATED)
        elif self._takes_less(old, new):
            self.retry(POD_RESIZED)

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other pods."""
        known = {*self._state.uids(), *self._reports.uids(), *self._queue, *self._views}
        for uid in known.difference(uids):
            self._forget(uid)

    def close(self) -> None:
        """Try nothing any more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- what a pod's worker asks and reports --------------------------------------------------

    def conditions(self, uid: str) -> Sequence[api.PodCondition]:
        """The conditions of a pod that report a resize."""
        return self._reports.of(uid).listed()

    def synced(self, pod: Pod, outcome: ResizeOutcome | None) -> bool:
        """A worker has seen to what the runtime enforces; whether the conditions have changed.

        ``pod`` as it was allocated then; ``outcome`` None: everything that runs has what it should
        have.
        """
        if outcome is None and self._reports.of(pod.uid).in_progress is None:
            return False
        given = self._state.find(pod.uid)
        if given is not None and with_resources(pod, given) is not pod:
            return False  # a newer resize was allocated since: this says nothing about it
        return self._reports.synced(pod, outcome)

    def ended(self, uid: str) -> None:
        """A pod has run to its end: nothing of it is resized any more."""
        self._queue.pop(uid, None)
        self._reports.forget(uid)

    # -- trying ------------------------------------------------------------------------------

    def retry(self, trigger: str, *, woken: str = "") -> None:
        """Try all resizes that wait. ``woken``: a pod whose worker the caller wakes anyway."""
        self.close()
        if not self._queue:
            return
        if not self._sources_ready():
            self._try_later(FIRST_RETRY_S)
            return
        for one in self._ordered():
            uid = one.desired.uid
            before = self._reports.of(uid)
            allocated = self._try(one, trigger)
            if (allocated or self._reports.of(uid) != before) and uid != woken:
                self._sync(uid)
        if self._queue:
            self._try_later(RETRY_S)

    def _try_later(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay, self.retry, PERIODIC)

    def _ordered(self) -> list[Waiting]:
        waiting = []
        for uid in list(self._queue):
            desired = self._current(uid)
            if desired is None:
                del self._queue[uid]
                continue
            since = (self._reports.of(uid).pending or {}).get("lastTransitionTime") or ""
            waiting.append(Waiting(desired, self.allocated(desired), since))
        try:
            return in_order(waiting)
        except ValueError as error:
            log.error("resizes are tried as they came", extra={"why": str(error)})
            return waiting

    def _try(self, one: Waiting, trigger: str) -> bool:
        """Whether the resize is allocated; what needs no further try leaves the queue."""
        desired, uid = one.desired, one.desired.uid
        if self._has_what_it_asks(desired):
            del self._queue[uid]
            self._reports.not_pending(uid)
            return False
        try:
            never = infeasible(desired, one.allocated, self._rules)
            rejection = None if never is not None else self._judge(desired)
        except ValueError as error:
            never, rejection = None, Rejection("UnexpectedAdmissionError", str(error))
        if never is not None:
            del self._queue[uid]
            self._metrics.infeasible.labels(never.detail).inc()
            self._reports.infeasible(desired, never.message)
            return False
        if rejection is not None:
            self._reports.deferred(desired, rejection.reason, rejection.message)
            return False
        del self._queue[uid]
        if self._reports.of(uid).deferred:
            self._metrics.deferred_accepted.labels(trigger).inc()
        self._state.put(uid, of_pod(desired))
        self._reports.allocated(desired)
        return True

    # -- small things ------------------------------------------------------------------------

    def _has_what_it_asks(self, pod: Pod) -> bool:
        return self.allocated(pod).object is pod.object

    def _forget(self, uid: str) -> None:
        self._queue.pop(uid, None)
        self._views.pop(uid, None)
        self._state.remove(uid)
        self._reports.forget(uid)

    def _is_resize(self, old: Pod, new: Pod) -> bool:
        try:
            found = list(asks(old, new))
        except ValueError as error:
            log.error("a pod asks for what is no amount", extra={"pod": new.key, "why": str(error)})
            return False
        for one in found:
            self._metrics.requested.labels(one.resource, one.requirement, one.operation).inc()
        return bool(found) or pod_level_changes(old, new)

    def _takes_less(self, old: Pod, new: Pod) -> bool:
        try:
            before = pod_requests(in_force(self.allocated(old)))
            after = pod_requests(in_force(self.allocated(new)))
        except ValueError:
            return False
        return any(after.get(name, 0) < before.get(name, 0) for name in COMPUTE)

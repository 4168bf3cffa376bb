"""Keeps the allocation of each pod, and allocates requested resizes that fit.

A pod's worker only ever sees the pod as allocated. A change to the spec's resources is a resize
that waits here until it is allocated; then the worker carries it out and reports the result. An
infeasible resize is reported and dropped; one that only lacks room is retried whenever room may
have become free. Nothing here waits. ``resources`` decides on feasibility and order, and admission
decides what fits.

The allocation of a pod is recorded when it is admitted, unless the pod can never be resized because
it names no cpu or memory. The record is necessary: a pod whose spec changed while the agent was
down must not be judged, let alone rejected, by what it requests now. Source:
docs/reference/behaviour.md, c10; KEP-1287.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, replace
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.pods import ResizeMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, requests_in_force
from kubeletpy.pods.runtime_status import ResizeOutcome
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation import conditions
from kubeletpy.resources.allocation import resources as allocation_resources
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.conditions import NONE, ResizeConditions
from kubeletpy.resources.allocation.reports import Decided, ResizeReports

log = logging.getLogger(__name__)

FIRST_RETRY_S = 30.0
"""While not all sources are ready."""
RETRY_S = 180.0

PODS_ADDED = "pods_added"
POD_UPDATED = "pod_updated"
PODS_REMOVED = "pods_removed"
POD_TERMINATED = "pod_terminated"
POD_RESIZED = "pod_resized"
PERIODIC = "periodic_retry"


class AllocationManager(Component):
    """The allocations of a node's pods, and the resizes that wait for one.

    Use it inside the event loop only; every method returns at once.
    """

    state: ResourceState
    """Allocated resources; survives restarts."""
    recorder: EventRecorder
    clock: Clock
    rules: allocation_resources.ResizeRules | None = None
    metrics: ResizeMetrics | None = None
    judge: Callable[[Pod], Rejection | None] = lambda pod: None
    """Why a pod would not fit beside the other pods as allocated; None: it fits."""
    current: Callable[[str], Pod | None] = lambda uid: None
    """The newest object of a pod in the configuration."""
    sync: Callable[[str], None] = lambda uid: None
    """Wakes a pod's worker."""
    sources_ready: Callable[[], bool] = lambda: True
    """Whether all sources are ready: until then, nothing is allocated."""
    decided: Decided = lambda uid, decisions: None
    """Called with what was decided about a pod."""

    def __post_init__(self) -> None:
        self._rules = self.rules or allocation_resources.ResizeRules()
        self._metrics = self.metrics or ResizeMetrics(Families())
        self._reports = ResizeReports(self.recorder, self.clock, self._metrics, self.decided)
        self._queue: dict[str, None] = {}
        """Uids of pods with a resize to try, in order of arrival."""
        self._timer: asyncio.TimerHandle | None = None
        self._views: dict[str, tuple[api.Pod, allocation_resources.PodResources, Pod]] = {}

    # -- what is allocated -------------------------------------------------------------------

    def allocated(self, pod: Pod) -> Pod:
        """The pod as it is to be run: with the cpu and memory allocated to it."""
        recorded = self.state.find(pod.uid)
        if recorded is None:
            return pod
        kept = self._views.get(pod.uid)
        if kept is not None and kept[0] is pod.object and kept[1] is recorded:
            return kept[2]
        view = allocation_resources.with_resources(pod, recorded)
        self._views[pod.uid] = (pod.object, recorded, view)
        return view

    def resized(self, desired: Pod) -> Pod | allocation_resources.Infeasible:
        """The pod as it would be run after a resize that fits. Raises ValueError."""
        never = allocation_resources.infeasible(desired, self.allocated(desired), self._rules)
        if never is not None:
            return never
        return allocation_resources.with_resources(desired, self._requested_resources(desired))

    def admitting(self, pod: Pod) -> Pod:
        """The pod as it is to be admitted: as allocated, if this node has run it before."""
        if self.state.find(pod.uid) is None and not self.state.complete:
            reported = allocation_resources.reported_resources(pod)
            if allocation_resources.with_resources(pod, reported) is not pod:
                self.state.put(pod.uid, reported)
        return self.allocated(pod)

    def admitted(self, pod: Pod) -> None:
        """A pod was admitted: allocate what it requests now, unless it has an allocation."""
        recorded, desired = self.state.find(pod.uid), self._requested_resources(pod)
        if recorded is None:
            if not allocation_resources.never_resized(desired):
                self.state.put(pod.uid, desired)
        elif desired.volumes.keys() - recorded.volumes:  # recorded before sizes could be changed
            self.state.put(
                pod.uid, replace(recorded, volumes={**desired.volumes, **recorded.volumes})
            )

    def refused(self, uid: str) -> None:
        """Forget a pod that was rejected."""
        self._forget(uid)

    # -- what happens to pods ----------------------------------------------------------------

    def added(self, pods: Iterable[Pod]) -> None:
        """All new pods of a source have passed admission."""
        found = False
        for pod in pods:
            reported = conditions.from_status(pod.status.get("conditions"))
            waits = not self._has_requested_resources(pod)
            if reported != NONE:
                # if no resize is waiting, it was allocated but not yet reported to the API
                pending = reported.pending if waits else None
                self._reports.take_over(pod, ResizeConditions(pending, reported.in_progress))
            if waits:
                self._queue[pod.uid] = None
                found = True
        if found:
            self.retry(PODS_ADDED)

    def updated(self, old: Pod | None, new: Pod) -> None:
        """A pod's object has changed. The caller wakes the pod's worker in any case."""
        if old is not None and not self._is_resize(old, new):
            return
        if self._has_requested_resources(new):
            self._queue.pop(new.uid, None)
            self._reports.not_pending(new.uid)
        else:
            self._queue[new.uid] = None
            self.retry(POD_UPDATED, woken=new.uid)

    def removed(self, uids: Iterable[str]) -> None:
        """Forget pods that no source has."""
        for uid in uids:
            self._forget(uid)
        self.retry(PODS_REMOVED)

    def reconciled(self, old: Pod | None, new: Pod) -> None:
        """The API shows a new status of a pod: it may have ended, or use less than before."""
        if not self._queue or old is None:
            return
        if new.is_terminal_in_api and not old.is_terminal_in_api:
            self.retry(POD_TERMINATED)
        elif self._takes_less(old, new):
            self.retry(POD_RESIZED)

    def forget_others(self, uids: Iterable[str]) -> None:
        """Forget all pods but these."""
        known = {*self.state.uids(), *self._reports.uids(), *self._queue, *self._views}
        for uid in known.difference(uids):
            self._forget(uid)

    def close(self) -> None:
        """Stop the timer of periodic retries."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- queries and reports of a pod's worker ---------------------------------------------------

    def conditions(self, uid: str) -> Sequence[api.PodCondition]:
        """The conditions of a pod that report a resize."""
        return self._reports.conditions(uid).listed()

    def synced(self, pod: Pod, outcome: ResizeOutcome | None) -> bool:
        """A worker has brought the runtime in line; returns whether the conditions have changed.

        ``pod`` as allocated then; ``outcome`` None: everything that runs has the resources it
        should have.
        """
        if outcome is None and self._reports.conditions(pod.uid).in_progress is None:
            return False
        recorded = self.state.find(pod.uid)
        if recorded is not None and allocation_resources.with_resources(pod, recorded) is not pod:
            return False  # a newer resize has been allocated since; this result is outdated
        return self._reports.synced(pod, outcome)

    def ended(self, uid: str) -> None:
        """A pod has run to completion: it is not resized any more."""
        self._queue.pop(uid, None)
        self._reports.forget(uid)

    # -- trying ------------------------------------------------------------------------------

    def retry(self, trigger: str, *, woken: str = "") -> None:
        """Try all waiting resizes. ``woken``: a pod whose worker the caller wakes in any case."""
        self.close()
        if not self._queue:
            return
        if not self.sources_ready():
            self._try_later(FIRST_RETRY_S)
            return
        for one in self._waiting_resizes():
            uid = one.desired.uid
            before = self._reports.conditions(uid)
            allocated = self._try(one, trigger)
            if (allocated or self._reports.conditions(uid) != before) and uid != woken:
                self.sync(uid)
        if self._queue:
            self._try_later(RETRY_S)

    def _try_later(self, delay: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(delay, self.retry, PERIODIC)

    def _waiting_resizes(self) -> list[allocation_resources.WaitingResize]:
        waiting = []
        for uid in list(self._queue):
            desired = self.current(uid)
            if desired is None:
                del self._queue[uid]
                continue
            since = (self._reports.conditions(uid).pending or {}).get("lastTransitionTime") or ""
            waiting.append(
                allocation_resources.WaitingResize(desired, self.allocated(desired), since)
            )
        try:
            return allocation_resources.order_resizes(waiting)
        except ValueError as error:
            log.error(
                "pending resizes are retried in their order of arrival", extra={"why": str(error)}
            )
            return waiting

    def _try(self, one: allocation_resources.WaitingResize, trigger: str) -> bool:
        """Try one resize; whether it was allocated. One that needs no retry leaves the queue."""
        desired, uid = one.desired, one.desired.uid
        if self._has_requested_resources(desired):
            del self._queue[uid]
            self._reports.not_pending(uid)
            return False
        try:
            never = allocation_resources.infeasible(desired, one.allocated, self._rules)
            rejection = None if never is not None else self.judge(desired)
        except ValueError as error:
            never = None
            rejection = Rejection(AdmissionReason.UNEXPECTED_ADMISSION_ERROR, str(error))
        if never is not None:
            del self._queue[uid]
            self._metrics.infeasible.labels(never.detail).inc()
            self._reports.infeasible(desired, never.message)
            return False
        if rejection is not None:
            self._reports.deferred(desired, rejection.reason, rejection.message)
            return False
        del self._queue[uid]
        if self._reports.conditions(uid).deferred:
            self._metrics.deferred_accepted.labels(trigger).inc()
        self.state.put(uid, self._requested_resources(desired))
        self._reports.allocated(desired)
        return True

    # -- helpers -----------------------------------------------------------------------------

    def _requested_resources(self, pod: Pod) -> allocation_resources.PodResources:
        return allocation_resources.requested_resources(
            pod, memory_volumes=self._rules.memory_volumes
        )

    def _has_requested_resources(self, pod: Pod) -> bool:
        return self.allocated(pod).object is pod.object

    def _forget(self, uid: str) -> None:
        self._queue.pop(uid, None)
        self._views.pop(uid, None)
        self.state.remove(uid)
        self._reports.forget(uid)

    def _is_resize(self, old: Pod, new: Pod) -> bool:
        try:
            found = list(allocation_resources.resource_changes(old, new))
        except ValueError as error:
            log.error(
                "a pod requests an invalid quantity", extra={"pod": new.key, "why": str(error)}
            )
            return False
        for one in found:
            self._metrics.requested.labels(one.resource, one.requirement, one.operation).inc()
        volumes = self._rules.memory_volumes and allocation_resources.volume_sizes_change(old, new)
        return bool(found) or volumes or allocation_resources.pod_level_changes(old, new)

    def _takes_less(self, old: Pod, new: Pod) -> bool:
        try:
            before = requests_in_force(self.allocated(old))
            after = requests_in_force(self.allocated(new))
        except ValueError:
            return False
        return any(after.get(name, 0) < before.get(name, 0) for name in COMPUTE)

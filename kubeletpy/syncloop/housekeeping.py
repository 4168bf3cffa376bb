"""Housekeeping: the pass that keeps memory, workers, runtime and API in step, and its rules.

A pass reads only memory, so that it costs microseconds on a quiet node
(docs/reference/behaviour.md, a6). It must never run before all sources have delivered and the
runtime has been listed: it ends what no source has. The other classes answer what of a pod must
stay, and remove dead containers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Backlog
from kubeletpy.metrics.pods import PodCountMetrics
from kubeletpy.pods.pod import NodePods, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus
from kubeletpy.podworkers.records import KillOptions, PodUpdate, Stage, UpdateType, WorkerSummary
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.syncer import ORPHAN_GRACE
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.remote.errors import CRIError
from kubeletpy.syncloop.lifecycle import ActivePods
from kubeletpy.syncloop.merge import Merge

log = logging.getLogger(__name__)


class Housekeeping(Component):
    """One pass at a time, without waiting for anything."""

    pods: PodManager
    workers: PodWorkers
    forget_statuses: Callable[[Iterable[str]], None]
    cache: PodStatusCache
    active: ActivePods
    queries: WorkerQueries
    metrics: PodCountMetrics
    delete_mirror: Callable[[Pod], None] = lambda mirror: None
    reconcile_mirror: Callable[[Pod, Pod | None], None] = lambda pod, mirror: None
    # Called after each pass that found different pods from the one before; must not block.
    found: Callable[[NodePods], None] = lambda found: None

    def __post_init__(self) -> None:
        self._last: NodePods | None = None

    def run_once(self, received_at: float, unsettled: Collection[str] = ()) -> None:
        """Make one pass. ``received_at`` in event-loop seconds.

        ``unsettled``: uids of pods for which it is not known yet whether they may run here; they
        are neither started nor ended.
        """
        pods = self.pods.pods()
        desired = self.pods.uids()
        views = self.workers.orphan_pass(desired)
        mirrors = self.pods.mirrors()
        self.forget_statuses(desired.union(views, (m.uid for m in mirrors)))
        for mirror in self.pods.orphan_mirrors():
            if not self._is_pictured(mirror, unsettled):
                self.delete_mirror(mirror)
        self._restore_mirrors(pods, unsettled)
        active = self.active.active(pods)
        self.metrics.pods(_by_static(pods), _by_static(active), len(mirrors))
        admitted = [pod for pod in active if pod.uid not in unsettled]
        self._start_unknown(admitted, views, received_at)
        self._end_terminal(pods, views, received_at)
        self._kill_orphans(views, unsettled, received_at)
        self.metrics.working(Counter(_labels(view) for view in views.values()))
        self._publish_pods(desired.union(unsettled), views)

    def republish_pods(self) -> None:
        """Make the next pass report what it found even if no pod came or went."""
        self._last = None

    def _is_pictured(self, mirror: Pod, unsettled: Collection[str]) -> bool:
        """Whether anything that a mirror shows still exists."""
        if self.queries.is_static_terminating(mirror.full_name):
            return True
        known = (self.cache.status(uid) for uid in unsettled)
        return any(s and (s.namespace, s.name) == (mirror.namespace, mirror.name) for s in known)

    def _restore_mirrors(self, pods: Sequence[Pod], unsettled: Collection[str]) -> None:
        """Have missing mirrors made, also of pods that are not synced: finished, rejected, or in
        the middle of a long sync. A pod that is ending still needs the mirror of its name."""
        for pod in pods:
            if not pod.is_static or pod.uid in unsettled:
                continue
            holder = self.queries.name_holder(pod.full_name)
            if holder in ("", pod.uid) and not self.queries.is_static_terminating(pod.full_name):
                self.reconcile_mirror(pod, self.pods.mirror_of(pod))

    def _start_unknown(
        self, active: Sequence[Pod], views: dict[str, WorkerSummary], received_at: float
    ) -> None:
        """A uid reappeared after its worker was done: start it again."""
        for pod in active:
            if pod.uid in views:
                continue
            mirror = self.pods.mirror_of(pod)
            self.workers.update_pod(
                PodUpdate(UpdateType.CREATE, pod, mirror, None, None, received_at)
            )
            views[pod.uid] = WorkerSummary(Stage.SYNC, False, True, pod.is_static)
            self.metrics.restarted("true" if pod.is_static else "")

    def _end_terminal(
        self, pods: Sequence[Pod], views: dict[str, WorkerSummary], received_at: float
    ) -> None:
        """Deleted pods that never ran (refused ones): let their deletion complete."""
        running = self.cache.running()
        for pod in pods:
            if not (pod.being_deleted and pod.is_terminal_in_api):
                continue
            if pod.uid not in views and pod.uid not in running:
                update = PodUpdate(UpdateType.KILL, pod=pod, received_at=received_at)
                self.workers.update_pod(update)
                views[pod.uid] = WorkerSummary(Stage.TERMINATING, False, True, pod.is_static)

    def _kill_orphans(
        self, views: dict[str, WorkerSummary], unsettled: Collection[str], received_at: float
    ) -> None:
        for uid in self.cache.running():
            status = self.cache.status(uid)
            if uid in views or uid in unsettled or status is None or status.empty:
                continue  # what could not be read yet is killed when it can be
            log.warning(
                "stopping a pod that should not run",
                extra={"pod": f"{status.namespace}/{status.name}", "uid": uid},
            )
            self.workers.update_pod(
                PodUpdate(
                    UpdateType.KILL,
                    runtime_pod=status,
                    kill=KillOptions(grace_override=ORPHAN_GRACE),
                    received_at=received_at,
                )
            )
            views[uid] = WorkerSummary(Stage.TERMINATING, True, False, False)
            self.metrics.orphaned_runtime_pods.inc()

    def _publish_pods(self, desired: frozenset[str], views: dict[str, WorkerSummary]) -> None:
        alive = (Stage.SYNC, Stage.TERMINATING)
        working = {uid for uid, view in views.items() if view.stage in alive}
        found = NodePods(desired, self.cache.running() | working)
        if found != self._last:
            self._last = found
            self.found(found)


def _by_static(pods: Sequence[Pod]) -> dict[str, int]:
    static = sum(pod.is_static for pod in pods)
    return {"": len(pods) - static, "true": static}


def _labels(view: WorkerSummary) -> tuple[str, str, str]:
    """lifecycle, config, static as in kubelet_working_pods; finished counts as terminated."""
    lifecycle = Stage.TERMINATED if view.stage is Stage.FINISHED else view.stage
    if not view.has_config:
        return lifecycle.value, "runtime_only", "unknown"
    return lifecycle.value, "orphan" if view.orphan else "desired", "true" if view.static else ""


class UnreadPods(Component):
    """Pods for which a source has something that can't be read: they are left as they are.

    An API object at least has the identity of its pod. An invalid manifest has none: any pod from
    such a source that no readable manifest accounts for may be its earlier version. A pod that a
    readable manifest has replaced is not held. Determined anew at each call, at no cost while every
    manifest can be read.
    """

    merge: Merge
    pods: PodManager
    cache: PodStatusCache
    # Not None for the UID of a pod that this agent has known, which needs no guess.
    worker: Callable[[str], object]

    def __post_init__(self) -> None:
        self._reported: frozenset[str] = frozenset()

    def holds(self, uid: str) -> bool:
        """Whether a pod may be one that a source has but that can't be read."""
        return uid in self.merge.unknown or self._may_be_nameless(uid)

    def uids(self) -> frozenset[str]:
        """The uids of the pods that are left as they are."""
        if not self.merge.nameless:
            self._reported = frozenset()
            return self.merge.unknown
        held = frozenset(uid for uid in self.cache if self._may_be_nameless(uid))
        for uid in held - self._reported:
            log.warning(
                "a pod is left running: it may belong to a manifest that can't be read",
                extra={"uid": uid},
            )
        self._reported = held
        return self.merge.unknown | held

    def _may_be_nameless(self, uid: str) -> bool:
        if not self.merge.nameless or self.pods.get(uid) or self.worker(uid) is not None:
            return False
        status = self.cache.status(uid)
        if status is None or status.source not in self.merge.nameless:
            return False
        successor = self.pods.by_name(status.namespace, status.name)
        return successor is None or not successor.is_static


class Remains(Component):
    """Which data of a pod (by uid) may still be needed, for what cleans up after pods."""

    pods: PodManager
    workers: WorkerQueries
    unread: UnreadPods
    # Whether the API has the newest status of a pod.
    is_reported: Callable[[str], bool]

    def may_run(self, uid: str) -> bool:
        """Whether a source has the pod or its containers may run."""
        if self.pods.get(uid) is not None or self.unread.holds(uid):
            return True
        return self.workers.could_have_running_containers(uid)

    def needs_directory(self, uid: str) -> bool:
        """Whether a pod may run, or its worker still has to take down its volumes."""
        return self.may_run(uid) or not self.workers.should_be_finished(uid)

    def removable(self, uid: str) -> bool:
        """Whether a pod's records may go: not until the API has how its containers ended."""
        if self.unread.holds(uid):
            return False
        return self.workers.should_content_be_removed(uid) and self.is_reported(uid)


QUEUE = 500
WAITS_AT_MOST_S = 10.0
"""A removal waits so long for pods that wait to start or stop."""
KEEP = 1
KEEP_UNREPORTED = 2
"""Runs of a container that a status can show: both stay until the API has them."""


def dead_to_remove(
    status: PodRuntimeStatus, died: str | None, *, keep: int = KEEP, remove_all: bool = False
) -> list[str]:
    """Ids of exited containers that may go.

    ``died``: only containers with that one's name; an unknown id removes nothing. None: all names,
    and the newest ``keep`` of all of them stay. ``remove_all``: everything that has exited.
    """
    exited = [c for c in status.containers if c.state is ContainerState.EXITED]
    if remove_all:
        return [container.id for container in exited]
    if died is not None:
        one = status.by_id(died)
        exited = [] if one is None else [c for c in exited if c.name == one.name]
    exited.sort(key=lambda container: container.rank, reverse=True)
    return [container.id for container in exited[keep:]]


class DeadContainers(Component):
    """Removes dead containers soon after a newer one of their name has died.

    The newest record of each name stays, from which restarts and last states are read; all are
    removed only when the pod's content may go. One remover works for the node; what does not fit in
    its queue is left to garbage collection. Source: docs/reference/behaviour.md, p2.
    """

    # Removes a container by id, and raises CRIError.
    remove: Callable[[str], Awaitable[None]]
    cache: PodStatusCache
    content_removable: Callable[[str], bool]
    backlog: Backlog
    # Whether the API has how the containers of a pod ended, by UID.
    reported: Callable[[str], bool] = lambda uid: True

    def __post_init__(self) -> None:
        self._queue: asyncio.Queue[str] = asyncio.Queue(QUEUE)
        self._queued: set[str] = set()

    def died(self, uid: str, container_id: str) -> None:
        """A container of a pod has died: remove older records of its name."""
        if (status := self.cache.status(uid)) is not None:
            remove_all = self.content_removable(uid)
            keep = KEEP if self.reported(uid) else KEEP_UNREPORTED
            self._enqueue(dead_to_remove(status, container_id, keep=keep, remove_all=remove_all))

    def remove_all(self, uid: str) -> None:
        """Remove every dead container of a pod."""
        if (status := self.cache.status(uid)) is not None:
            self._enqueue(dead_to_remove(status, None, remove_all=True))

    async def run(self) -> None:
        """Remove what is queued, one by one, until cancelled."""
        while True:
            container_id = await self._queue.get()
            await self.backlog.cleared(WAITS_AT_MOST_S)
            self._queued.discard(container_id)
            try:
                await self.remove(container_id)
            except CRIError as error:
                log.info("dead container not removed", extra={"error": str(error)})

    def _enqueue(self, ids: list[str]) -> None:
        for container_id in ids:
            if container_id not in self._queued and not self._queue.full():
                self._queued.add(container_id)
                self._queue.put_nowait(container_id)

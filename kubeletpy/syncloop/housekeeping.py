"""The pass that keeps memory, workers, runtime and API in step (docs/reference/behaviour.md, a6).

Reads only memory, so that a pass over a quiet node costs microseconds. It must never
run before all sources have delivered and the runtime has been listed: it ends what no source has.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from kubeletpy.metrics.pods import PodCountMetrics
from kubeletpy.pods.pod import NodePods, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.protocol import KillOptions, PodUpdate, UpdateType
from kubeletpy.podworkers.records import Stage, WorkerSummary
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.status.store import StatusManager
from kubeletpy.syncloop.active_pods import ActivePods

log = logging.getLogger(__name__)

ORPHAN_GRACE = 1


class Housekeeping:
    """One pass at a time, without waiting for anything."""

    def __init__(
        self,
        pods: PodManager,
        workers: PodWorkers,
        statuses: StatusManager,
        cache: PodStatusCache,
        *,
        active: ActivePods,
        queries: WorkerQueries,
        metrics: PodCountMetrics,
        delete_mirror: Callable[[Pod], None] = lambda mirror: None,
        reconcile_mirror: Callable[[Pod, Pod | None], None] = lambda pod, mirror: None,
        found: Callable[[NodePods], None] = lambda found: None,
    ) -> None:
        """``found`` is called after each pass that found different pods from the one before; it
        must not block."""
        self._pods = pods
        self._workers = workers
        self._statuses = statuses
        self._cache = cache
        self._active = active
        self._queries = queries
        self._delete_mirror = delete_mirror
        self._reconcile_mirror = reconcile_mirror
        self._found = found
        self._metrics = metrics
        self._last: NodePods | None = None

    def run_once(self, received_at: float, unsettled: Collection[str] = ()) -> None:
        """Make one pass. ``received_at`` in event-loop seconds.

        ``unsettled``: uids of pods for which it is not known yet whether they may run here; they
        are neither started nor ended.
        """
        pods = self._pods.pods()
        desired = self._pods.uids()
        views = self._workers.orphan_pass(desired)
        mirrors = self._pods.mirrors()
        self._statuses.forget_except(desired.union(views, (m.uid for m in mirrors)))
        for mirror in self._pods.orphan_mirrors():
            if not self._is_pictured(mirror, unsettled):
                self._delete_mirror(mirror)
        self._restore_mirrors(pods, unsettled)
        active = self._active.active(pods)
        self._metrics.pods(_by_static(pods), _by_static(active), len(mirrors))
        admitted = [pod for pod in active if pod.uid not in unsettled]
        self._start_unknown(admitted, views, received_at)
        self._end_terminal(pods, views, received_at)
        self._kill_orphans(views, unsettled, received_at)
        self._metrics.working(Counter(_labels(view) for view in views.values()))
        self._publish_pods(desired.union(unsettled), views)

    def republish_pods(self) -> None:
        """Make the next pass report what it found even if no pod came or went."""
        self._last = None

    def _is_pictured(self, mirror: Pod, unsettled: Collection[str]) -> bool:
        """Whether anything that a mirror shows still exists."""
        if self._queries.is_static_terminating(mirror.full_name):
            return True
        known = (self._cache.status(uid) for uid in unsettled)
        return any(s and (s.namespace, s.name) == (mirror.namespace, mirror.name) for s in known)

    def _restore_mirrors(self, pods: Sequence[Pod], unsettled: Collection[str]) -> None:
        """Have missing mirrors made, also of pods that are not synced: finished, rejected, or in
        the middle of a long sync. A pod that is ending still needs the mirror of its name."""
        for pod in pods:
            if not pod.is_static or pod.uid in unsettled:
                continue
            holder = self._queries.name_holder(pod.full_name)
            if holder in ("", pod.uid) and not self._queries.is_static_terminating(pod.full_name):
                self._reconcile_mirror(pod, self._pods.mirror_of(pod))

    def _start_unknown(
        self, active: Sequence[Pod], views: dict[str, WorkerSummary], received_at: float
    ) -> None:
        """A uid reappeared after its worker was done: start it again."""
        for pod in active:
            if pod.uid in views:
                continue
            mirror = self._pods.mirror_of(pod)
            self._workers.update_pod(
                PodUpdate(UpdateType.CREATE, pod, mirror, None, None, received_at)
            )
            views[pod.uid] = WorkerSummary(Stage.SYNC, False, True, pod.is_static)
            self._metrics.restarted("true" if pod.is_static else "")

    def _end_terminal(
        self, pods: Sequence[Pod], views: dict[str, WorkerSummary], received_at: float
    ) -> None:
        """Deleted pods that never ran (refused ones): let their deletion complete."""
        running = self._cache.running()
        for pod in pods:
            if not (pod.being_deleted and pod.is_terminal_in_api):
                continue
            if pod.uid not in views and pod.uid not in running:
                update = PodUpdate(UpdateType.KILL, pod=pod, received_at=received_at)
                self._workers.update_pod(update)
                views[pod.uid] = WorkerSummary(Stage.TERMINATING, False, True, pod.is_static)

    def _kill_orphans(
        self, views: dict[str, WorkerSummary], unsettled: Collection[str], received_at: float
    ) -> None:
        for uid in self._cache.running():
            status = self._cache.status(uid)
            if uid in views or uid in unsettled or status is None or status.empty:
                continue  # what could not be read yet is killed when it can be
            log.warning(
                "stopping a pod that should not run",
                extra={"pod": f"{status.namespace}/{status.name}", "uid": uid},
            )
            self._workers.update_pod(
                PodUpdate(
                    UpdateType.KILL,
                    runtime_pod=status,
                    kill=KillOptions(grace_override=ORPHAN_GRACE),
                    received_at=received_at,
                )
            )
            views[uid] = WorkerSummary(Stage.TERMINATING, True, False, False)
            self._metrics.orphan_found()

    def _publish_pods(self, desired: frozenset[str], views: dict[str, WorkerSummary]) -> None:
        alive = (Stage.SYNC, Stage.TERMINATING)
        working = {uid for uid, view in views.items() if view.stage in alive}
        found = NodePods(desired, self._cache.running() | working)
        if found != self._last:
            self._last = found
            self._found(found)


def _by_static(pods: Sequence[Pod]) -> dict[str, int]:
    static = sum(pod.is_static for pod in pods)
    return {"": len(pods) - static, "true": static}


def _labels(view: WorkerSummary) -> tuple[str, str, str]:
    """lifecycle, config, static as in kubelet_working_pods; finished counts as terminated."""
    lifecycle = Stage.TERMINATED if view.stage is Stage.FINISHED else view.stage
    if not view.has_config:
        return lifecycle.value, "runtime_only", "unknown"
    return lifecycle.value, "orphan" if view.orphan else "desired", "true" if view.static else ""

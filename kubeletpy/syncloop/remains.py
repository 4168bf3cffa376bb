"""Which data of a pod may still be needed: for everything that cleans up after pods.

Combines memory, sources and workers; keeps nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.syncloop.unread import UnreadPods


class Remains:
    """Answers about pods, by uid."""

    def __init__(
        self,
        pods: PodManager,
        workers: WorkerQueries,
        unread: UnreadPods,
        is_reported: Callable[[str], bool],
    ) -> None:
        """``is_reported``: whether the API has the newest status of a pod."""
        self._pods = pods
        self._workers = workers
        self._unread = unread
        self._is_reported = is_reported

    def may_run(self, uid: str) -> bool:
        """Whether a source has the pod or its containers may run."""
        if self._pods.get(uid) is not None or self._unread.holds(uid):
            return True
        return self._workers.could_have_running_containers(uid)

    def needs_directory(self, uid: str) -> bool:
        """Whether a pod may run, or its worker still has to take down its volumes."""
        return self.may_run(uid) or not self._workers.should_be_finished(uid)

    def removable(self, uid: str) -> bool:
        """Whether a pod's records may go: not until the API has how its containers ended."""
        if self._unread.holds(uid):
            return False
        return self._workers.should_content_be_removed(uid) and self._is_reported(uid)

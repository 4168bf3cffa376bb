"""Which pods use the node: those that have not ended and were not refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.pods.pod import TERMINAL_PHASES, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.status.store import StatusManager


class ActivePods:
    """Determined anew at each call."""

    def __init__(self, pods: PodManager, workers: WorkerQueries, statuses: StatusManager) -> None:
        self._pods = pods
        self._workers = workers
        self._statuses = statuses

    def __call__(self) -> list[Pod]:
        """All of them."""
        return self.active(self._pods.pods())

    def active(self, pods: Sequence[Pod]) -> list[Pod]:
        """Those among some pods."""
        return [pod for pod in pods if self._is_active(pod)]

    def _is_active(self, pod: Pod) -> bool:
        if self._workers.is_known_terminated(pod.uid):
            return False
        if self._workers.is_termination_requested(pod.uid):
            return True
        if pod.is_terminal_in_api:
            return False
        status = self._statuses.get_status(pod.uid)
        return status is None or status.get("phase") not in TERMINAL_PHASES

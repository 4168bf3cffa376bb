"""Metrics of the pod workers. Must never import a metrics library: the registry is outside.

Pure.
"""

from __future__ import annotations

from typing import Protocol


class WorkerMetrics(Protocol):
    """Seconds are of the event loop's clock."""

    def pod_taken_on(self, containers: int) -> None:
        """kubelet_containers_per_pod_count: regular containers of a pod at its first sync."""
        ...

    def sync_done(self, operation: str, seconds: float) -> None:
        """kubelet_pod_worker_duration_seconds{operation_type}: message to end of its sync."""
        ...

    def worker_started(self, seconds: float) -> None:
        """kubelet_pod_worker_start_duration_seconds: pod first seen to its first sync."""
        ...

    def pod_running(self, seconds: float) -> None:
        """kubelet_pod_start_duration_seconds: pod first seen to Running."""
        ...


class NoWorkerMetrics:
    """Counts nothing."""

    def pod_taken_on(self, containers: int) -> None:
        """Do nothing."""

    def sync_done(self, operation: str, seconds: float) -> None:
        """Do nothing."""

    def worker_started(self, seconds: float) -> None:
        """Do nothing."""

    def pod_running(self, seconds: float) -> None:
        """Do nothing."""

"""Metrics of in-place resizes: requested, pending and in progress. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.metrics.families import Families

ACCEPTED, REVERTED, TERMINATED = "accepted", "reverted", "terminated"
"""How a deferred resize ends."""
DEFERRED_BUCKETS = (
    *(5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180),
    *(300, 600, 1200, 1800, 3600),
)
"""Seconds. Source: docs/reference/metrics.csv: kubelet_pod_deferred_resize_duration_seconds."""
_BUCKETS = (
    (2_000_000_000, "system-critical"),
    (100_000, "high"),
    (1, "medium"),
    (0, "normal"),
    (-999, "low"),
)


def priority_bucket(priority: int) -> str:
    """The label for a pod's priority; a pod without one has priority 0."""
    return next((name for least, name in _BUCKETS if priority >= least), "very-low")


class ResizeMetrics:
    """Resizes as the allocation package sees them."""

    def __init__(self, families: Families) -> None:
        self.requested = families.counter(
            "kubelet_container_requested_resizes_total",
            "Amounts of containers that updates of pods change: add, remove, increase or decrease.",
            "resource",
            "requirement",
            "operation",
        )
        self.pending = families.gauge(
            "kubelet_pod_pending_resizes",
            "Pods with a resize that is not allocated: deferred or infeasible.",
            "reason",
            "priority_bucket",
        )
        self.in_progress = families.gauge(
            "kubelet_pod_in_progress_resizes", "Pods with a resize allocated and not done."
        )
        self.infeasible = families.counter(
            "kubelet_pod_infeasible_resizes_total",
            "Resizes judged impossible on this node.",
            "reason_detail",
        )
        self.deferred = families.histogram(
            "kubelet_pod_deferred_resize_duration_seconds",
            "Time for which resizes of pods were deferred, by how that ended.",
            "resolution",
            "priority_bucket",
            buckets=DEFERRED_BUCKETS,
        )
        self.deferred_accepted = families.counter(
            "kubelet_pod_deferred_accepted_resizes_total",
            "Deferred resizes that were allocated later, by what made them be tried again.",
            "retry_trigger",
        )

    def now(self, pending: Mapping[tuple[str, str], int], in_progress: int) -> None:
        """Set the number of pods with a resize in progress, and pending by reason and priority."""
        self.pending.clear()
        for labels, count in pending.items():
            self.pending.labels(*labels).set(count)
        self.in_progress.set(in_progress)

"""Metrics of in-place resizes: requested, pending and in progress. Numbers only."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.metrics.families import Families

PENDING_REASONS = ("deferred", "infeasible")


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
        )
        self.in_progress = families.gauge(
            "kubelet_pod_in_progress_resizes", "Pods with a resize allocated and not done."
        )
        self.infeasible = families.counter(
            "kubelet_pod_infeasible_resizes_total",
            "Resizes judged impossible on this node.",
            "reason_detail",
        )
        self.deferred_accepted = families.counter(
            "kubelet_pod_deferred_accepted_resizes_total",
            "Deferred resizes that were allocated later, by what made them be tried again.",
            "retry_trigger",
        )

    def now(self, pending: Mapping[str, int], in_progress: int) -> None:
        """Set the number of pods with a resize pending, by reason, and in progress."""
        for reason in PENDING_REASONS:
            self.pending.labels(reason).set(pending.get(reason, 0))
        self.in_progress.set(in_progress)

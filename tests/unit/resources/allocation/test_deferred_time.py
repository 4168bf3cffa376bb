"""Duration of deferred resizes, by how the deferral ended (docs/reference/metrics.csv)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.pods import ResizeMetrics, priority_bucket
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.allocation.conditions import DEFERRED, ResizeConditions
from kubeletpy.resources.allocation.reports import ResizeReports
from tests.unit.runtime_manager.pods_and_records import make_pod

NAME = "kubelet_pod_deferred_resize_duration_seconds"


class _Clock:
    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def now(self) -> float:
        return self.at


class _Silent:
    def event(self, *_: Any) -> None:
        return


class Setup:
    def __init__(self) -> None:
        self.families, self.clock = Families(), _Clock()
        metrics = ResizeMetrics(self.families)
        recorder, clock = cast(Any, _Silent()), cast(Any, self.clock)
        self.reports = ResizeReports(recorder, clock, metrics, lambda uid, decisions: None)

    def measured(self, resolution: str, priority: str) -> tuple[float, float]:
        labels = {"resolution": resolution, "priority_bucket": priority}
        read = self.families.registry.get_sample_value
        return read(f"{NAME}_count", labels) or 0, read(f"{NAME}_sum", labels) or 0

    def defer(self, **spec: Any) -> Pod:
        pod = make_pod(**spec)
        self.reports.deferred(pod, DEFERRED, "Node didn't have enough resource: cpu")
        self.clock.at += 40
        self.reports.deferred(pod, DEFERRED, "Node didn't have enough resource: memory")
        self.clock.at += 2
        return pod


def test_each_end_counts_once_with_the_time_since_the_first_deferral() -> None:
    s = Setup()
    pod = s.defer(priority=7)
    s.reports.allocated(pod)
    s.reports.allocated(pod)
    assert s.measured("accepted", "medium") == (1, 42)
    s.reports.not_pending(s.defer().uid)
    assert s.measured("reverted", "normal") == (1, 42)
    s.reports.forget(s.defer(priority=-1).uid)
    assert s.measured("terminated", "low") == (1, 42)


def test_resizes_never_deferred_are_not_measured() -> None:
    s = Setup()
    pod = make_pod()
    s.reports.infeasible(pod, "too much")
    s.clock.at += 5
    s.reports.not_pending(pod.uid)
    s.reports.forget(pod.uid)
    assert not any(s.measured(end, "normal")[0] for end in ("accepted", "reverted", "terminated"))


def test_a_deferral_of_an_earlier_run_counts_from_its_own_time() -> None:
    s = Setup()
    reported: Any = {"reason": DEFERRED, "lastTransitionTime": "2027-01-15T07:59:00Z"}
    pod = make_pod(priority=5)
    s.reports.take_over(pod, ResizeConditions(reported, None))
    pending = {"reason": "deferred", "priority_bucket": "medium"}
    count = s.families.registry.get_sample_value
    assert count("kubelet_pod_pending_resizes", pending) == 1
    s.reports.forget(pod.uid)
    assert count("kubelet_pod_pending_resizes", pending) is None
    assert s.measured("terminated", "medium") == (1, 60)


@pytest.mark.parametrize(
    ("priority", "bucket"),
    [
        (2_000_001_000, "system-critical"),
        (2_000_000_000, "system-critical"),
        (1_999_999_999, "high"),
        (100_000, "high"),
        (99_999, "medium"),
        (1, "medium"),
        (0, "normal"),
        (-1, "low"),
        (-999, "low"),
        (-1000, "very-low"),
    ],
)
def test_priorities(priority: int, bucket: str) -> None:
    assert priority_bucket(priority) == bucket

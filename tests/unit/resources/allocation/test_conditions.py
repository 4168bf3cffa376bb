"""The two conditions of a resize: when they change and whether that is reported (KEP-1287)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.pods import ResizeMetrics, priority_bucket
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.allocation import conditions
from kubeletpy.resources.allocation.conditions import DEFERRED, ResizeConditions, from_status
from kubeletpy.resources.allocation.reports import ResizeReports
from tests.kit.clocks import SetClock
from tests.kit.events import Recorder
from tests.kit.records import make_pod

NOW = 1_767_225_600.0
THEN, T_NOW = "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z"


def condition(kind: str = "PodResizePending", **fields: Any) -> Any:
    return {"type": kind, "status": "True", **fields}


def test_conditions_from_a_status() -> None:
    waits, runs = condition(), condition("PodResizeInProgress")
    others = [condition("Ready")]
    assert from_status(None) == ResizeConditions()
    assert from_status(others) == ResizeConditions()
    assert from_status([runs, *others]) == ResizeConditions(None, runs)
    found = from_status([waits, runs, *others])
    assert found == ResizeConditions(waits, runs)
    assert found.listed() == [waits, runs]
    assert ResizeConditions(None, runs).listed() == [runs]


@pytest.mark.parametrize(
    ("pending", "deferred"),
    [
        (None, False),
        (condition(reason="Deferred"), True),
        (condition(reason="Infeasible"), False),
        (condition(), False),
    ],
)
def test_only_a_condition_with_reason_deferred_is_deferred(pending: Any, deferred: bool) -> None:
    assert ResizeConditions(pending).deferred is deferred


@pytest.mark.parametrize(
    ("before", "changes", "moved"),
    [
        (None, True, T_NOW),
        (condition(reason="Deferred", observedGeneration=2, lastTransitionTime=THEN), False, THEN),
        (condition(reason="Deferred", observedGeneration=1, lastTransitionTime=THEN), True, THEN),
        (condition(reason="Deferred", lastTransitionTime=THEN), True, THEN),
        (condition(reason="Deferred", observedGeneration=2), False, T_NOW),
        (
            condition(reason="Infeasible", observedGeneration=2, lastTransitionTime=THEN),
            True,
            T_NOW,
        ),
    ],
)
def test_pending(before: Any, changes: bool, moved: str) -> None:
    made, notified = conditions.pending(before, "Deferred", "why", 2, now=NOW)
    assert notified is changes
    assert made == condition(
        reason="Deferred",
        message="why",
        observedGeneration=2,
        lastProbeTime=T_NOW,
        lastTransitionTime=moved,
    )


def test_empty_fields_are_left_out() -> None:
    made, changes = conditions.pending(None, "", "", 0, now=NOW)
    assert made == condition(lastProbeTime=T_NOW, lastTransitionTime=T_NOW)
    assert changes
    same, changes = conditions.pending(condition(), "", "", 0, now=NOW)
    assert (same, changes) == (made, True)
    _, changes = conditions.pending(condition(reason=""), "", "", 0, now=NOW)
    assert not changes


RUNS = "PodResizeInProgress"


@pytest.mark.parametrize(
    ("before", "supplied", "kept", "reported"),
    [
        (None, ("", ""), False, ("", "", 2)),
        (None, ("Error", "m"), False, ("Error", "m", 2)),
        ({}, ("", ""), True, ("", "", 0)),
        ({"observedGeneration": 1}, ("", ""), True, ("", "", 1)),
        ({"observedGeneration": 1}, ("Error", "m"), False, ("Error", "m", 1)),
        ({"reason": "Error", "message": "m"}, ("", ""), True, ("Error", "m", 0)),
        ({"reason": "Error", "message": "m"}, ("Error", "m"), True, ("Error", "m", 0)),
        ({"reason": "Error", "message": "m"}, ("Error", "n"), False, ("Error", "n", 0)),
        ({"reason": "Error", "message": "m"}, ("Error", ""), False, ("Error", "", 0)),
        ({"reason": "Error", "message": "m"}, ("", "n"), False, ("", "n", 0)),
    ],
)
def test_in_progress(before: Any, supplied: tuple[str, str], kept: bool, reported: Any) -> None:
    old = None if before is None else condition(RUNS, lastTransitionTime=THEN, **before)
    made, changes = conditions.in_progress(old, *supplied, 2, now=NOW)
    assert changes is not kept
    assert (made is old) is kept
    found: Any = made
    assert (
        found.get("reason", ""),
        found.get("message", ""),
        found.get("observedGeneration", 0),
    ) == reported
    same_reason = old is not None and old.get("reason", "") == reported[0]
    assert found["lastTransitionTime"] == (THEN if same_reason else T_NOW)


# Duration of deferred resizes, by how the deferral ended (docs/reference/metrics.csv).

NAME = "kubelet_pod_deferred_resize_duration_seconds"


class Setup:
    def __init__(self) -> None:
        self.families, self.clock = Families(), SetClock(1_800_000_000.0)
        metrics = ResizeMetrics(self.families)
        recorder, clock = Recorder(), self.clock
        self.reports = ResizeReports(recorder, clock, metrics, lambda uid, decisions: None)

    def measured(self, resolution: str, priority: str) -> tuple[float, float]:
        labels = {"resolution": resolution, "priority_bucket": priority}
        read = self.families.registry.get_sample_value
        return read(f"{NAME}_count", labels) or 0, read(f"{NAME}_sum", labels) or 0

    def defer(self, **spec: Any) -> Pod:
        pod = make_pod(**spec)
        self.reports.deferred(pod, DEFERRED, "Node didn't have enough resource: cpu")
        self.clock.time += 40
        self.reports.deferred(pod, DEFERRED, "Node didn't have enough resource: memory")
        self.clock.time += 2
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
    s.clock.time += 5
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

"""The order and the grace periods of pods while the machine shuts down."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.shutdown.plan import (
    CRITICAL_PRIORITY,
    Period,
    ended_status,
    grace,
    groups,
    looks_completed,
    notice,
    periods,
)
from kubeletpy.pods.pod import Pod
from tests.kit.pods import make_pod

P = Period


@pytest.mark.parametrize(
    ("total", "critical", "by_priority", "expected"),
    [
        (0, 0, [], ()),
        (30, 0, [], (P(0, 30), P(CRITICAL_PRIORITY, 0))),
        (30, 10, [], (P(0, 20), P(CRITICAL_PRIORITY, 10))),
        (1, 0, [], (P(0, 1), P(CRITICAL_PRIORITY, 0))),
        (0.9, 0, [], ()),
        (0, 0, [(0, 0), (10, 0)], ()),
        (0, 0, [(0, 1)], (P(0, 1),)),
        (30, 10, [(0, 5)], (P(0, 5),)),
        (0, 0, [(1000, 5), (0, 60), (-5, 3)], (P(-5, 3), P(0, 60), P(1000, 5))),
    ],
)
def test_periods(
    total: float, critical: float, by_priority: list[tuple[int, int]], expected: tuple[P, ...]
) -> None:
    assert periods(total, critical, by_priority) == expected


def prioritised(name: str, priority: int | None) -> Pod:
    return make_pod(name) if priority is None else make_pod(name, priority=priority)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ([P(0, 20), P(CRITICAL_PRIORITY, 10)], [(20, "low none zero high"), (10, "critical")]),
        ([P(10, 5), P(1000, 7)], [(5, "low none zero"), (7, "high critical")]),
        (
            [P(-100, 5), P(500, 7), P(2_000_000_001, 9)],
            [(5, "low none zero"), (7, "high critical")],
        ),
        ([P(5000, 5)], [(5, "low none zero high critical")]),
    ],
)
def test_groups(of: list[P], expected: list[tuple[int, str]]) -> None:
    pods = [
        prioritised(name, priority)
        for name, priority in (
            ("low", -7),
            ("none", None),
            ("zero", 0),
            ("high", 1000),
            ("critical", CRITICAL_PRIORITY),
        )
    ]
    found = groups(pods, of)
    assert [(g.period.seconds, " ".join(p.name for p in g.pods)) for g in found] == expected


def test_the_grace_is_the_shorter_of_pod_and_group() -> None:
    assert grace(make_pod(terminationGracePeriodSeconds=30), 10.9) == 10
    assert grace(make_pod(terminationGracePeriodSeconds=5), 10) == 5
    assert grace(make_pod(terminationGracePeriodSeconds=5), -1) == 0


@pytest.mark.parametrize(("seconds", "each"), [(0, 0), (8, 0.8), (20, 2), (50, 5), (600, 5)])
def test_the_notice_is_a_share_of_the_first_period(seconds: int, each: float) -> None:
    times = notice(P(0, seconds))
    assert (times.deliver, times.spread) == pytest.approx((each, each))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"restartPolicy": "Always"}, False),
        ({"restartPolicy": "OnFailure"}, True),
        ({"restartPolicy": "Never"}, True),
        ({"containers": [{"name": "c", "image": "i", "restartPolicy": "Never"}]}, True),
    ],
)
def test_pods_that_a_start_could_take_for_completed(spec: Any, expected: bool) -> None:
    assert looks_completed(make_pod(**spec)) is expected


@pytest.mark.parametrize(
    ("before", "after"), [("Running", "Failed"), ("Pending", "Failed"), ("Succeeded", "Succeeded")]
)
def test_the_status(before: str, after: str) -> None:
    other = {"type": "Ready", "status": "False"}
    supplied: Any = {
        "phase": before,
        "conditions": [other, {"type": "DisruptionTarget", "status": "False"}],
    }
    status = ended_status(supplied, 0.0, 3)
    assert (status["phase"], status["reason"]) == (after, "Terminated")
    assert status["message"] == "Pod was terminated in response to imminent node shutdown."
    assert status["conditions"] == [
        other,
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": status["message"],
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "observedGeneration": 3,
        },
    ]

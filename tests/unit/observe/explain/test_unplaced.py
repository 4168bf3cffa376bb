"""Pods without a node, and events of other components."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.unplaced import events_of_others, explain_unscheduled, lines
from tests.unit.observe.explain.test_from_api import UNSCHEDULED, pod


def event(uid: str = "u", reason: str = "FailedScheduling", **more: Any) -> dict[str, Any]:
    return {
        "involvedObject": {"kind": "Pod", "uid": uid},
        "type": "Warning",
        "reason": reason,
        "message": "0/1 nodes\x1b are free",
        "lastTimestamp": "2026-01-01T00:00:02Z",
        "source": {"component": "default-scheduler"},
        **more,
    }


@pytest.mark.parametrize(
    ("made", "events", "verdict"),
    [
        (
            pod({"conditions": [UNSCHEDULED]}, node="", uid="u"),
            [event()],
            "node: none; not scheduled: Unschedulable: 0/1 nodes",
        ),
        (
            pod(node="", uid="u"),
            [
                event(message="newest"),
                event(message="older", lastTimestamp="2026-01-01T00:00:01Z"),
                event(message="undated", lastTimestamp="soon"),
                event("other", message="of another pod"),
                event(reason="Other", message="of another kind"),
            ],
            "node: none; not scheduled: FailedScheduling: newest",
        ),
        (pod(node="", uid="u"), [], "node: none; not scheduled: no scheduler has processed it yet"),
    ],
)
def test_a_pod_without_a_node_is_a_line(made: Any, events: list[Any], verdict: str) -> None:
    (line,) = lines([made, pod(uid="placed")], events)
    assert line == {
        "namespace": "ns",
        "name": "web",
        "uid": "u",
        "node": None,
        "state": "not scheduled",
        "healthy": False,
        "verdict": verdict,
        "cause": "unschedulable",
        "first_seen": None,
    }
    assert render.pods([line]) == f"ns/web  {verdict}\n"


def test_pods_with_a_node_and_ended_pods_are_left_out() -> None:
    assert lines([pod(), pod({"phase": "Failed"}, node="")], []) == []
    assert explain_unscheduled(pod(), []) is None


def test_all_about_such_a_pod() -> None:
    made = pod({"conditions": [UNSCHEDULED]}, node="", uid="u")
    found = explain_unscheduled(made, [])
    assert found is not None
    assert (found["phase"], found["ready"], found["containers"]) == ("Pending", False, [])
    assert [(each["kind"], each["why"]) for each in found["waits"]] == [
        ("scheduler", "scheduler default-scheduler: it tries again when nodes or pods change")
    ]


def test_events_of_others_exclude_those_of_the_agent() -> None:
    found = events_of_others(
        [
            event(count=3),
            event(source={"component": "kubelet"}),
            event(reportingComponent="kubelet"),
            event(
                reason="Scheduled",
                source=None,
                reportingComponent="mine",
                lastTimestamp=None,
                eventTime="2026-01-01T00:00:01.5Z",
                series={"count": 4},
            ),
        ]
    )
    assert [(e["at"] % 60, e["reason"], e["count"], e["source"]) for e in found] == [
        (1.5, "Scheduled", 4, "mine"),
        (2.0, "FailedScheduling", 3, "default-scheduler"),
    ]

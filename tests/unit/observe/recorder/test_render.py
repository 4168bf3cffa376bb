"""The complete text of a replay."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubeletpy.observe.recorder import replay
from kubeletpy.observe.recorder.model import LineKind
from kubeletpy.observe.recorder.replay import NODE, Moment, Replayed

RUNNING: dict[str, Any] = {
    "phase": "Running",
    "conditions": [{"type": "Initialized", "status": "False"}, {"type": "Ready", "status": "True"}],
}
FAILED: dict[str, Any] = {
    "phase": "Failed",
    "reason": "Evicted",
    "conditions": [{"type": "Ready", "status": "False"}],
    "initContainerStatuses": [
        {"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    ],
    "containerStatuses": [
        {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}},
        {"name": "d"},
    ],
    "ephemeralContainerStatuses": [{"name": "e", "state": {"running": {}}}],
}


def status(at: float, out: Any, now: Any = None) -> Moment:
    return Moment(at, LineKind.STATUS, {"out": out}, now)


def span(error: str | None) -> Moment:
    line = {"name": "CreateContainer", "detail": "", "took": 0.25, "error": error}
    return Moment(3.25, LineKind.SPAN, line)


def event(now: Any = None, **supplied: Any) -> Moment:
    out = [["RunSync", {"uid": "u", "stage": "sync"}], ["WakeAfter", {"delay": 1.5}]]
    return Moment(2, LineKind.EVENT, {"event": "TimerFired", "in": supplied, "out": out}, now)


def replayed() -> Replayed:
    return Replayed(
        names={"u": "ns/one", "v": "ns/two", "w": "ns/three"},
        stories={
            "u": [status(5, RUNNING), status(7200.0625, FAILED, RUNNING), span(None)],
            "v": [event(), span("no space")],
            "w": [status(4, FAILED), status(9, RUNNING, FAILED), event([], update={})],
            NODE: [event(update={"type": "sync"})],
        },
        versions=["1.0", "1.1"],
        node="node-a",
        decisions=12,
        problems=Counter({"a\nline": 2, "Format 9": 1}),
        first={"a\nline": 3, "Format 9": 7},
    )


EVICTED = (
    "Failed (Evicted), not ready, i terminated Completed 0, c waiting ContainerCreating, "
    "d unknown, e running"
)


def test_an_overview() -> None:
    """Pods are listed in the order in which they begin; other events are left out."""
    assert replay.overview(replayed(), "2.0").splitlines() == [
        "12 decisions of node node-a, made by 1.0, 1.1, replayed by 2.0: 3 differences",
        "  00:00:02.000 to 00:00:03.250  ns/two  no status",
        "  00:00:04.000 to 00:00:02.000  ns/three  Running, ready  2 differences",
        f"  00:00:05.000 to 00:00:03.250  ns/one  {EVICTED}  1 difference",
        "line 7 is not replayed: Format 9",
        "2 lines, the first is line 3, are not replayed: a line",
    ]
    assert replay.overview(Replayed(), "2.0") == (
        "0 decisions of node , made by no version, replayed by 2.0: no differences\n"
    )


def test_differences() -> None:
    assert replay.differences(replayed()).splitlines() == [
        "ns/one",
        f"  02:00:00.062  status  {EVICTED}",
        "                now     Running, ready",
        "ns/three",
        "  00:00:09.000  status  Running, ready",
        f"                now     {EVICTED}",
        "  00:00:02.000  event   TimerFired leads to RunSync sync, WakeAfter 1.5",
        "                now     TimerFired leads to nothing",
    ]


def test_a_difference_outside_the_summary_is_shown_in_full() -> None:
    found = Replayed(stories={"u": [status(1, RUNNING, {**RUNNING, "hostIP": "192.0.2.1"})]})
    assert replay.differences(found).splitlines() == [
        "u",
        "  00:00:01.000  status  Running, ready",
        '                now     {"phase": "Running", "conditions": [{"type": "Initialized", '
        '"status": "False"}, {"type": "Ready", "status": "True"}], "hostIP": "192.0.2.1"}',
    ]


@pytest.mark.parametrize(
    ("uid", "lines"),
    [
        (
            "v",
            [
                "ns/two (v)",
                "  00:00:02.000  event   TimerFired leads to RunSync sync, WakeAfter 1.5",
                "  00:00:03.250  span    CreateContainer took 250 ms: no space",
            ],
        ),
        (
            NODE,
            [
                "the node ()",
                "  00:00:02.000  event   TimerFired (sync) leads to RunSync sync, WakeAfter 1.5",
            ],
        ),
        (
            "u",
            [
                "ns/one (u)",
                "  00:00:05.000  status  Running, ready",
                f"  02:00:00.062  status  {EVICTED}",
                "                now     Running, ready",
                "  00:00:03.250  span    CreateContainer took 250 ms",
            ],
        ),
    ],
)
def test_a_story(uid: str, lines: list[str]) -> None:
    assert replay.story(replayed(), uid).splitlines() == lines


@pytest.mark.parametrize("at", [1e300, float("nan"), float("inf")])
def test_an_invalid_time_is_shown_as_dashes(at: float) -> None:
    found = Replayed(stories={"u": [Moment(at, LineKind.PLAN, {"out": {}})]})
    assert replay.story(found, "u") == "u (u)\n  --:--:--.---  plan    no change\n"

"""Start time of a pod's problem."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import replace
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.observe.explain.waits import wrong_since
from kubeletpy.pods.pod import Pod
from tests.kit.observe import NOW, facts, not_ready
from tests.kit.pods import make_pod

K = WaitKind
ENDING: dict[str, Any] = {"terminating_at": NOW - 10}


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def wait(kind: WaitKind = K.START_ERROR, since: float | None = None) -> Wait:
    return Wait(kind, "main", "why", None if since is None else NOW - since)


def condition(seconds: float, status: str = "False", kind: str = "Ready") -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": ago(seconds)}


def pod(**metadata: Any) -> Pod:
    """A pod created 100 s ago."""
    about = {**make_pod().metadata, "creationTimestamp": ago(100), **metadata}
    return Pod({**make_pod().object, "metadata": about})  # type: ignore[typeddict-item]


def ended(name: str, finished: float | None) -> dict[str, Any]:
    times = {} if finished is None else {"finishedAt": ago(finished)}
    return {"name": name, "state": {"terminated": {"exitCode": 1, **times}}}


DELETED = {"deletionTimestamp": ago(-20), "deletionGracePeriodSeconds": 45}
DEAD = {"phase": "Failed", "conditions": [condition(60)], "startTime": ago(90)}


@pytest.mark.parametrize(
    ("changes", "first", "since"),
    [
        ({"worker": ENDING}, None, 10),
        ({"worker": ENDING, "pod": pod(**DELETED)}, None, 25),
        ({"worker": {"terminating_at": NOW - 30}, "pod": pod(**DELETED)}, None, 30),
        ({"worker": ENDING, "pod": pod(deletionTimestamp=ago(11))}, None, 11),
        ({"worker": ENDING, "pod": pod(deletionTimestamp="soon")}, None, 10),
        ({"worker": ENDING, "wrong_since": NOW - 99}, wait(since=50), 10),
        ({"worker": ENDING, "bare": True}, None, 10),
        ({"wrong_since": NOW - 99, "status": DEAD}, wait(K.API_WRITE, 5), 5),
        ({"status": {**DEAD, "containerStatuses": []}}, None, 60),
        ({"status": {**DEAD, "containerStatuses": [ended("a", None)]}}, None, 60),
        (
            {
                "status": {
                    **DEAD,
                    "containerStatuses": [ended("a", 40), ended("b", 30), ended("c", None)],
                }
            },
            None,
            30,
        ),
        ({"status": {**DEAD, "containerStatuses": [], "conditions": []}}, None, 90),
        ({"status": {**DEAD, "containerStatuses": [], "phase": "Succeeded"}}, None, 60),
        ({"wrong_since": NOW - 70}, wait(since=80), 70),
        ({"wrong_since": NOW - 70}, None, 70),
        ({"wrong_since": NOW - 70}, wait(K.PROBE, 50), 50),
        ({"wrong_since": NOW - 70}, wait(K.READINESS_GATE, 50), 50),
        ({"wrong_since": NOW - 70}, wait(K.INIT_CONTAINER, 50), 50),
        ({"status": not_ready(conditions=[condition(60)])}, wait(since=80), 80),
        ({"status": not_ready(conditions=[condition(60)])}, wait(since=50), 60),
        ({"status": not_ready(conditions=[condition(60)])}, None, 60),
        ({"status": not_ready(conditions=[condition(60, "Unknown")])}, None, 60),
        (
            {
                "status": not_ready(
                    conditions=[
                        condition(80, kind="Initialized"),
                        condition(70, "True", "PodScheduled"),
                        condition(60),
                    ]
                )
            },
            None,
            60,
        ),
        ({"status": not_ready(startTime=ago(90)), "pod": pod()}, None, 90),
        ({"status": not_ready(), "pod": pod()}, None, 100),
        ({"status": not_ready(startTime="soon"), "pod": pod()}, None, 100),
        ({"status": not_ready(startTime=ago(90)), "bare": True}, None, None),
        ({"status": {"startTime": ago(90)}}, None, None),
        ({"status": {"startTime": ago(90)}}, wait(since=5), 5),
        ({"status": {"conditions": [condition(60, "True")]}}, None, None),
        ({"wrong_since": NOW - 70}, wait(K.RUNTIME, 5), 5),
        ({"wrong_since": NOW - 70}, wait(K.RUNTIME), 70),
        ({}, wait(K.RUNTIME, 5), 5),
        ({"worker": ENDING}, wait(K.RUNTIME, 5), 10),
        ({"wrong_since": NOW}, None, 0),
        ({"wrong_since": NOW + 1}, None, None),
    ],
)
def test_the_start_of_a_problem(
    changes: dict[str, Any], first: Wait | None, since: float | None
) -> None:
    """``bare``: no source has the pod any more."""
    bare = changes.get("bare", False)
    found = facts(**{key: value for key, value in changes.items() if key != "bare"})
    found = replace(found, pod=None) if bare else found
    assert wrong_since(found, first) == (None if since is None else NOW - since)

"""Verdicts of the watch on a node that was taken over."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.agent.takeover.adopt.steps import (
    ContainerSeen,
    PodSeen,
    UnitProgram,
    WatchLimits,
    WatchObservation,
    WatchOutcome,
    is_ready,
    judge,
    plain_pods,
    pods_seen,
    read_pods,
    renewed_at,
)
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace

LIMITS = WatchLimits(watch=600)
SWITCHED = 10_000.0
RUNS = ContainerSeen("c1", 0, 100.0)
POD = PodSeen("ns/a", ready=True, deleting=False, containers={"app": RUNS})
BEFORE = {"uid": POD}
WELL = WatchObservation(
    SWITCHED + 100,
    UnitProgram.AGENT,
    node_ready=True,
    renewed=SWITCHED + 95,
    pods=BEFORE,
    answered=SWITCHED + 99,
)


def with_pod(**changes: Any) -> WatchObservation:
    return replace(WELL, pods={"uid": replace(POD, **changes)})


def with_container(container: ContainerSeen) -> WatchObservation:
    return with_pod(containers={"app": container})


@pytest.mark.parametrize(
    ("now", "outcome", "why"),
    [
        (WELL, "GO_ON", ""),
        (replace(WELL, at=SWITCHED + 601, answered=SWITCHED + 600), "CONFIRM", "the node was well"),
        (replace(WELL, running=UnitProgram.NOTHING), "GIVE_BACK", "the unit runs nothing"),
        (replace(WELL, running=UnitProgram.KUBELET), "GIVE_BACK", "the unit runs the kubelet"),
        (replace(WELL, exits=1), "GIVE_BACK", "the agent has exited"),
        (
            with_container(replace(RUNS, id="c2", restarts=1)),
            "GIVE_BACK",
            "container app of pod ns/a was restarted",
        ),
        (with_pod(containers={}), "GIVE_BACK", "container app of pod ns/a does not run any more"),
        (with_pod(ready=False), "GIVE_BACK", "pod ns/a has lost its readiness"),
        (with_pod(ready=False, containers={}, deleting=True), "GO_ON", ""),
        (replace(WELL, pods={}), "GO_ON", ""),
        (replace(WELL, pods={**BEFORE, "new": replace(POD, ready=False)}), "GO_ON", ""),
        (
            replace(WELL, refused=("pod ns/a: 422",)),
            "GIVE_BACK",
            "the API does not accept the status of pod ns/a: 422",
        ),
        (replace(WELL, node_ready=False), "GIVE_BACK", "after 90 s the node is not Ready"),
        (
            replace(WELL, renewed=SWITCHED - 1),
            "GIVE_BACK",
            "after 90 s the node is not Ready: its lease is not renewed",
        ),
        (replace(WELL, at=SWITCHED + 50, node_ready=False), "GO_ON", ""),
        (
            replace(WELL, answered=SWITCHED + 30),
            "GIVE_BACK",
            "the API server has not answered for 60 s",
        ),
        (replace(WELL, at=SWITCHED + 30, answered=0.0, node_ready=False), "GO_ON", ""),
    ],
)
def test_verdicts(now: WatchObservation, outcome: str, why: str) -> None:
    found = judge(BEFORE, now, SWITCHED, LIMITS)
    assert found.outcome is WatchOutcome[outcome]
    assert found.why.startswith(why)
    assert why or not found.why


@pytest.mark.parametrize(
    ("started", "outcome"), [(SWITCHED - 100, "GO_ON"), (SWITCHED - 700, "GIVE_BACK")]
)
def test_a_container_that_restarted_before_is_no_reason(started: float, outcome: str) -> None:
    flapping = replace(RUNS, restarts=7, started=started)
    before = {"uid": replace(POD, containers={"app": flapping}, ready=False)}
    now = with_container(replace(RUNS, id="c2", restarts=8))
    assert judge(before, now, SWITCHED, LIMITS).outcome is WatchOutcome[outcome]


@pytest.mark.parametrize(("static", "outcome"), [(True, "GIVE_BACK"), (False, "GO_ON")])
def test_another_pod_of_the_same_name(*, static: bool, outcome: str) -> None:
    before = {"uid": replace(POD, static=static)}
    now = replace(WELL, pods={"another": replace(POD, static=static)})
    assert judge(before, now, SWITCHED, LIMITS).outcome is WatchOutcome[outcome]


def test_pods_of_the_api() -> None:
    started = "2026-01-01T00:00:00Z"
    status: JSON = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [
            {"name": "init", "state": {"terminated": {}}},
            {"name": "side", "containerID": "x://s", "state": {"running": {"startedAt": started}}},
        ],
        "containerStatuses": [
            {"name": "app", "containerID": "x://c", "restartCount": 2, "state": {"running": {}}},
            {"name": "waits", "state": {"waiting": {}}},
        ],
    }
    pods = [
        {"metadata": {"namespace": "ns", "name": "a", "uid": "u"}, "status": status},
        {
            "metadata": {
                "namespace": "ns",
                "name": "m",
                "uid": "v",
                "deletionTimestamp": started,
                "annotations": {"kubernetes.io/config.mirror": "hash"},
            }
        },
    ]
    found = pods_seen(pods)
    assert found == {
        "u": PodSeen(
            "ns/a",
            ready=True,
            deleting=False,
            containers={
                "side": ContainerSeen("x://s", 0, 1767225600.0),
                "app": ContainerSeen("x://c", 2, 0.0),
            },
        ),
        "hash": PodSeen("ns/m", ready=False, deleting=True, containers={}, static=True),
    }
    assert read_pods(plain_pods({"u": found["u"]})) == {"u": found["u"]}
    assert is_ready({"status": status})
    assert not is_ready({})
    assert renewed_at({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}) == 1767225600.0
    assert renewed_at({}) == 0.0

"""Resources in a pod's status during and after an in-place resize."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import RuntimeResources
from kubeletpy.status import store
from kubeletpy.status.container_status import reported_resources
from kubeletpy.status.generate import generate_api_pod_status, pod_level_resources
from tests.kit.allocation import needs
from tests.kit.status import inputs, pod, record, runtime
from tests.unit.status.test_generate import only

GIVEN = needs("cpu=200m memory=64Mi", "cpu=400m memory=128Mi")
WAS = needs("cpu=100m memory=32Mi", "cpu=200m memory=64Mi")
TOLD = RuntimeResources(
    cpu_shares=102, cpu_quota=20000, cpu_period=100000, memory_limit_bytes=64 << 20
)


@pytest.mark.parametrize(
    ("notified", "actuated", "old", "reported"),
    [
        (TOLD, WAS, None, WAS),
        (TOLD, None, None, needs("cpu=100m memory=64Mi", "cpu=200m memory=64Mi")),
        (None, WAS, None, WAS),
        (None, needs("cpu=100m"), None, needs("cpu=100m memory=64Mi", "cpu=400m memory=128Mi")),
        (None, None, WAS, WAS),
        (None, None, None, GIVEN),
    ],
)
def test_resources_of_a_container_during_a_resize(
    notified: RuntimeResources | None,
    actuated: api.ResourceRequirements | None,
    old: api.ResourceRequirements | None,
    reported: api.ResourceRequirements,
) -> None:
    before: Any = None if old is None else {"containerID": "r://a-0", "resources": old}
    desired: Any = {"name": "a", "resources": GIVEN}
    entry = record("a", resources=notified)
    assert reported_resources(desired, entry, before, "r://a-0", actuated) == reported
    ended = record("a", "exited")
    assert reported_resources(desired, ended, before, "r://a-0", actuated) == GIVEN


def reported(**resources: Any) -> Any:
    return {name: {"name": name, "resources": value} for name, value in resources.items()}


@pytest.mark.parametrize(
    ("of", "has", "supplied", "phase", "expected"),
    [
        (pod(), {}, None, "Running", {}),
        (
            pod({"name": "a", "resources": GIVEN}, {"name": "b", "resources": WAS}),
            {},
            None,
            "Pending",
            {
                "allocatedResources": {"cpu": "300m", "memory": "96Mi"},
                "resources": needs("cpu=300m memory=96Mi", "cpu=600m memory=192Mi"),
            },
        ),
        (
            pod({"name": "a", "resources": GIVEN}, {"name": "b", "resources": WAS}),
            reported(a=WAS, b=WAS),
            None,
            "Running",
            {
                "allocatedResources": {"cpu": "300m", "memory": "96Mi"},
                "resources": needs("cpu=200m memory=64Mi", "cpu=400m memory=128Mi"),
            },
        ),
        (
            pod({"name": "a", "resources": GIVEN}, {"name": "b"}),
            reported(a=GIVEN),
            None,
            "Running",
            {
                "allocatedResources": {"cpu": "200m", "memory": "64Mi"},
                "resources": needs("cpu=200m memory=64Mi"),
            },
        ),
        (
            pod({"name": "a"}, resources=needs("cpu=2", "memory=1Gi")),
            {},
            needs("cpu=1", "memory=512Mi"),
            "Running",
            {"allocatedResources": {"cpu": "2"}, "resources": needs("cpu=1", "memory=512Mi")},
        ),
        (
            pod({"name": "a", "resources": WAS}, resources=needs("cpu=2", "memory=1Gi")),
            {},
            None,
            "Running",
            {
                "allocatedResources": {"cpu": "2", "memory": "32Mi"},
                "resources": needs("cpu=2 memory=32Mi", "cpu=200m memory=1Gi"),
            },
        ),
    ],
)
def test_pod_level_resources_during_a_resize(
    of: Pod, has: Any, supplied: api.ResourceRequirements | None, phase: str, expected: Any
) -> None:
    assert pod_level_resources(of, has, supplied, phase) == expected


PENDING: Any = {
    "type": "PodResizePending",
    "status": "True",
    "reason": "Deferred",
    "message": "no cpu",
    "observedGeneration": 2,
    "lastProbeTime": "2026-01-01T00:00:09Z",
    "lastTransitionTime": "2026-01-01T00:00:09Z",
}


def test_the_conditions_come_after_those_of_others_with_their_own_times() -> None:
    theirs: Any = {"type": "example.com/other", "status": "True", "lastTransitionTime": "x"}
    of = pod({"name": "a", "resources": GIVEN}, status={"conditions": [theirs]})
    made = replace(
        inputs(of, runtime(record("a", resources=TOLD))),
        resize_conditions=[PENDING],
        actuated={"a": WAS},
    )
    status = generate_api_pod_status(made)
    assert [c["type"] for c in status["conditions"]][:3] == [
        "example.com/other",
        "PodResizePending",
        "PodReadyToStartContainers",
    ]
    entry = only(status)
    assert entry["allocatedResources"] == GIVEN["requests"]
    assert entry["resources"] == WAS
    assert status["allocatedResources"] == GIVEN["requests"]
    in_api: Any = {"conditions": [{**PENDING, "lastTransitionTime": "y"}]}
    kept = store.prepare(of, status, in_api, 0.0)
    assert kept["conditions"][1] == PENDING
    newer: Any = {**PENDING, "observedGeneration": 3}
    other = generate_api_pod_status(replace(made, resize_conditions=[newer]))
    assert not store.same(status, other)
    probed: Any = {**PENDING, "lastProbeTime": "z"}
    assert store.same(status, generate_api_pod_status(replace(made, resize_conditions=[probed])))

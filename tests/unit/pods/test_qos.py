"""The QoS class by the spec (docs/reference/behaviour.md, k1)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.resources import (
    QoSClass,
    compute_qos_class,
    is_critical,
    is_node_critical,
    qos_class,
)
from tests.unit.runtime_manager.pods_and_records import container, make_pod

BOTH = {"cpu": "1", "memory": "1Gi"}


def resources(requests: Any = None, limits: Any = None) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}}


ROWS = [
    ("nothing", [{}], "BestEffort"),
    ("zero-is-nothing", [resources({"cpu": "0"}, {"memory": "0"})], "BestEffort"),
    ("other-resources-do-not-count", [resources({"example.com/gpu": "1"})], "BestEffort"),
    ("equal", [resources(BOTH, BOTH)], "Guaranteed"),
    (
        "equal-in-other-words",
        [resources({"cpu": "1000m", "memory": "1024Mi"}, BOTH)],
        "Guaranteed",
    ),
    ("only-limits-without-defaulting", [resources({}, BOTH)], "Burstable"),
    ("request-below-limit", [resources({"cpu": "500m", "memory": "1Gi"}, BOTH)], "Burstable"),
    ("only-cpu", [resources({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
    ("one-of-two", [resources(BOTH, BOTH), {}], "Burstable"),
    ("the-other-of-two", [{}, resources(BOTH, BOTH)], "Burstable"),
    ("two-of-two", [resources(BOTH, BOTH), resources(BOTH, BOTH)], "Guaranteed"),
    ("only-a-request", [resources({"memory": "1"})], "Burstable"),
]


@pytest.mark.parametrize(("specs", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_class_by_containers(specs: list[dict[str, Any]], expected: str) -> None:
    pod = make_pod(*(container(f"c{i}", **spec) for i, spec in enumerate(specs)))
    assert compute_qos_class(pod) == expected


def test_init_containers_count() -> None:
    full = container("app", **resources(BOTH, BOTH))
    assert compute_qos_class(make_pod(full, init=("init",))) is QoSClass.BURSTABLE
    init = container("init", **resources(BOTH, BOTH))
    assert compute_qos_class(make_pod(full, init=(init,))) is QoSClass.GUARANTEED


@pytest.mark.parametrize(
    ("pod_level", "expected"),
    [
        ({"requests": BOTH, "limits": BOTH}, "Guaranteed"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"memory": "1Gi"}}, "Burstable"),
        # an entry without amounts does not decide: the container requests cpu
        ({}, "Burstable"),
        ({"requests": {}}, "Burstable"),
        ({"limits": {}, "requests": None}, "Burstable"),
        ({"requests": {"example.com/gpu": "1"}}, "Burstable"),
        # huge pages alone do not raise the class above BestEffort
        ({"limits": {"hugepages-2Mi": "2Mi"}}, "BestEffort"),
    ],
)
def test_pod_level_resources_stand_alone(pod_level: dict[str, Any], expected: str) -> None:
    pod = make_pod(container("app", **resources({"cpu": "1"})), resources=pod_level)
    assert compute_qos_class(pod) == expected


def test_a_settled_class_is_kept_and_nonsense_is_not() -> None:
    pod = make_pod()
    pod.object["status"] = {"qosClass": "Guaranteed"}
    assert qos_class(pod) is QoSClass.GUARANTEED
    pod.object["status"] = {"qosClass": "Platinum"}
    assert qos_class(pod) is QoSClass.BEST_EFFORT


def test_malformed_quantity() -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        compute_qos_class(make_pod(container("app", **resources({"cpu": "lots"}))))


def test_critical_pods() -> None:
    assert is_critical(make_pod(priority=2_000_000_000))
    assert not is_critical(make_pod(priority=1_999_999_999))
    static = {"annotations": {"kubernetes.io/config.source": "file"}}
    assert is_critical(make_pod(metadata=static))
    assert is_critical(make_pod(metadata={"annotations": {"kubernetes.io/config.mirror": "h"}}))
    node_class: dict[str, Any] = {"priorityClassName": "system-node-critical"}
    assert is_node_critical(make_pod(priority=2_000_001_000, **node_class))
    assert not is_node_critical(make_pod(priority=5, **node_class))
    assert not is_node_critical(make_pod(priority=2_000_001_000))

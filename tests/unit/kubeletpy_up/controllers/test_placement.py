"""Nodes that a pod fits on, and the message when there are none."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.controllers.placement import pick_node
from kubeletpy_up.kinds.pods import requests_of
from tests.kit.embedded import node, pod


def _requesting(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "b", "resources": {"requests": requests}}]}


def _affinity(operator: str, *values: str, key: str = "disk") -> dict[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def _node(spec: dict[str, Any] | None = None, **labels: str) -> dict[str, Any]:
    made = node("n1")
    made["metadata"]["labels"] |= labels
    return {**made, "spec": spec or {}}


def _tolerated(name: str, effect: str) -> dict[str, Any]:
    return {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}


_TAINT = {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}
_NOT_READY = _node()
_NOT_READY["status"] = {
    **_NOT_READY["status"],
    "conditions": [{"type": "Ready", "status": "False"}],
}
_PORT = [{"name": "c", "image": "b", "ports": [{"containerPort": 80, "hostPort": 80}]}]


@pytest.mark.parametrize(
    ("spec", "node_", "bound", "why"),
    [
        ({}, _node(), [], ""),
        (_requesting(cpu="2", memory="4Gi"), _node(), [], ""),
        (_requesting(cpu="2001m"), _node(), [], "1 Insufficient cpu"),
        (
            _requesting(cpu="3", memory="5Gi"),
            _node(),
            [],
            "1 Insufficient cpu, 1 Insufficient memory",
        ),
        (_requesting(cpu="1"), _node(), [_requesting(cpu="1500m")], "1 Insufficient cpu"),
        (_requesting(**{"example.com/gpu": "1"}), _node(), [], "1 Insufficient example.com/gpu"),
        ({}, _node(), [{}] * 10, "1 Too many pods"),
        ({}, _node({"unschedulable": True}), [], "1 node(s) were unschedulable"),
        (
            {"tolerations": [{"operator": "Exists"}]},
            _node({"unschedulable": True, **_TAINT}),
            [],
            "",
        ),
        ({}, _node(_TAINT), [], "1 node(s) had untolerated taint(s) {a: b}"),
        ({"tolerations": [{"key": "a", "value": "b"}]}, _node(_TAINT), [], ""),
        (
            {"tolerations": [{"key": "a", "value": "c"}]},
            _node(_TAINT),
            [],
            "1 node(s) had untolerated taint(s) {a: b}",
        ),
        ({"nodeSelector": {"disk": "ssd"}}, _node(disk="ssd"), [], ""),
        (
            {"nodeSelector": {"disk": "ssd"}},
            _node(),
            [],
            "1 node(s) didn't match Pod's node affinity/selector",
        ),
        (_affinity("In", "ssd", "hdd"), _node(disk="hdd"), [], ""),
        (_affinity("NotIn", "hdd"), _node(), [], ""),
        (_affinity("Gt", "3"), _node(disk="4"), [], ""),
        (_affinity("Lt", "3"), _node(), [], "1 node(s) didn't match Pod's node affinity/selector"),
        (_affinity("Exists"), _node(), [], "1 node(s) didn't match Pod's node affinity/selector"),
        (
            {"containers": _PORT},
            _node(),
            [{"containers": _PORT}],
            "1 node(s) didn't have free ports for the requested pod ports",
        ),
        ({}, _NOT_READY, [], "1 node(s) were not ready"),
        ({"tolerations": [{"operator": "Exists"}]}, _NOT_READY, [], ""),
        ({"tolerations": [_tolerated("not-ready", "NoSchedule")]}, _NOT_READY, [], ""),
        (
            {"tolerations": [_tolerated("not-ready", "NoExecute")]},  # every pod has it
            _NOT_READY,
            [],
            "1 node(s) were not ready",
        ),
    ],
)
def test_fit(
    spec: dict[str, Any], node_: dict[str, Any], bound: list[dict[str, Any]], why: str
) -> None:
    others = [pod(f"p{i}", nodeName="n1", **other) for i, other in enumerate(bound)]
    found = pick_node(pod("x", **spec), [node_], others)
    assert found.node == ("" if why else "n1")
    assert found.message == (f"0/1 nodes are available: {why}." if why else "")


def test_finished_pods_use_no_capacity() -> None:
    done = {**pod("d", nodeName="n1", **_requesting(cpu="2")), "status": {"phase": "Succeeded"}}
    assert pick_node(pod("x", **_requesting(cpu="2")), [_node()], [done]).node == "n1"


def test_without_nodes() -> None:
    assert pick_node(pod(), [], []).message == "no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([], 100),
        ([{"cpu": "300m"}], 300),
        ([{"cpu": "300m"}, {"cpu": "50m"}], 300),
        ([("sidecar", {"cpu": "200m"})], 300),
        ([("sidecar", {"cpu": "200m"}), {"cpu": "300m"}], 500),
        ([{"cpu": "300m"}, ("sidecar", {"cpu": "200m"})], 300),
    ],
)
def test_init_containers_and_sidecars(init: list[Any], expected: int) -> None:
    containers = []
    for index, step in enumerate(init):
        requested = step[1] if isinstance(step, tuple) else step
        made = {"name": f"i{index}", "image": "b", "resources": {"requests": requested}}
        containers.append({**made, "restartPolicy": "Always"} if isinstance(step, tuple) else made)
    asking = pod("x", initContainers=containers, **_requesting(cpu="100m"))
    assert requests_of(asking)["cpu"] == expected


def test_overhead_and_pod_level_requests() -> None:
    asking = pod(
        "x",
        overhead={"cpu": "10m"},
        resources={"requests": {"cpu": "1"}},
        **_requesting(cpu="100m"),
    )
    assert requests_of(asking)["cpu"] == 1010

"""Which running pods a start of the agent would not admit again, and the order of admission."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import CONFIG_SOURCE, SOURCE_FILE, Pod
from kubeletpy.resources.admission.checks import NodeState, Rejection
from kubeletpy.resources.admission.handlers import refused_at_start, seniority
from tests.kit.cgroups import container, pod

STARTED = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
CRITICAL = 2_000_000_000


def node(labels: Any = None, taints: Any = (), **allocatable: str) -> api.Node:
    return cast(
        "api.Node",
        {
            "metadata": {"name": "n1", "labels": labels or {}},
            "spec": {"taints": list(taints)},
            "status": {
                "allocatable": {
                    "cpu": "2",
                    "memory": "1Gi",
                    "pods": "3",
                    **{k.replace("_", "."): v for k, v in allocatable.items()},
                }
            },
        },
    )


def running(uid: str, *containers: Any, created: str = "", **spec: Any) -> Pod:
    at = created or f"2026-01-01T00:00:0{uid[-1]}Z"
    return pod(*containers, uid=uid, creationTimestamp=at, **{"status": STARTED, **spec})


def selecting(uid: str) -> Pod:
    return running(uid, nodeSelector={"disk": "ssd"})


def with_port(uid: str, **spec: Any) -> Pod:
    return running(uid, container(ports=[{"containerPort": 80, "hostPort": 80}]), **spec)


def gpu(uid: str) -> Pod:
    amounts = {"example.com/gpu": "1"}
    return running(uid, {"name": "c", "resources": {"requests": amounts, "limits": amounts}})


REFUSAL = Rejection(AdmissionReason.TOPOLOGY_AFFINITY_ERROR, "no")
STATIC = {CONFIG_SOURCE: SOURCE_FILE}
SMALLER = [running(f"u{n}", container("600m")) for n in (1, 2, 3)]
NO_EXECUTE = {"key": "k", "value": "v", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("what", "pods", "on", "refused"),
    [
        ("all fit", SMALLER, node(), {}),
        ("a label was changed", [selecting("u1")], node({"disk": "hdd"}), {"u1": "NodeAffinity"}),
        ("the label is there", [selecting("u1")], node({"disk": "ssd"}), {}),
        ("fewer pods are allowed: the youngest", SMALLER, node(pods="2"), {"u3": "OutOfpods"}),
        ("less cpu", SMALLER, node(cpu="1500m"), {"u3": "OutOfcpu"}),
        (
            "a smaller one fits where a large one did not",
            [*SMALLER[:2], running("u3", container("2")), running("u4", container("100m"))],
            node(cpu="1500m", pods="9"),
            {"u3": "OutOfcpu"},
        ),
        ("a taint", [running("u1")], node(taints=[NO_EXECUTE]), {"u1": "TaintToleration"}),
        (
            "a static pod bears it",
            [running("u1", annotations=STATIC)],
            node(taints=[NO_EXECUTE]),
            {},
        ),
        ("a host port", [with_port("u1"), with_port("u2")], node(), {"u2": "NodePorts"}),
        (
            "static pods come first",
            [with_port("u1"), with_port("u2", annotations=STATIC)],
            node(),
            {"u1": "NodePorts"},
        ),
        (
            "a pod that has ended has no port any more",
            [with_port("u1", status={"phase": "Succeeded"}), with_port("u2")],
            node(),
            {},
        ),
        (
            "a critical pod preempts",
            [*SMALLER[:2], running("u3", container("600m"), priority=CRITICAL)],
            node(cpu="1300m"),
            {"u1": "Preempting"},
        ),
        (
            "a critical pod that no preemption helps",
            [running("u1", container("3"), priority=CRITICAL)],
            node(),
            {"u1": "UnexpectedAdmissionError"},
        ),
        (
            "a preempted pod leaves its place to one that is judged later",
            [running("u1", container("1"), priority=CRITICAL), running("u2", container("1500m"))],
            node(cpu="2"),
            {"u2": "OutOfcpu"},
        ),
        (
            "devices are gone",
            [gpu("u1")],
            node(**{"example_com/gpu": "0"}),
            {"u1": "OutOfexample.com/gpu"},
        ),
        ("an unknown resource is not the kubelet's", [gpu("u1")], node(), {}),
        (
            "an invalid quantity",
            [running("u1", container("x"))],
            node(),
            {"u1": "UnexpectedAdmissionError"},
        ),
        (
            "another operating system",
            [running("u1", os={"name": "windows"})],
            node(),
            {"u1": "PodOSNotSupported"},
        ),
        (
            "a sysctl that is no longer allowed",
            [running("u1", securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]})],
            node(),
            {"u1": "SysctlForbidden"},
        ),
    ],
)
def test_refused_at_start(what: str, pods: list[Pod], on: Any, refused: dict[str, str]) -> None:
    found = refused_at_start(pods, on, NodeState())
    assert {uid: each.reason for uid, each in found.items()} == refused, what


def test_devices_that_are_held_stay() -> None:
    held = {"u1": {"example.com/gpu": 1}}
    found = refused_at_start(
        [gpu("u1")], node(**{"example_com/gpu": "0"}), NodeState(), held=lambda uid: held[uid]
    )
    assert not found


def test_gates_of_the_node() -> None:
    pods = [running("u1", resources={"requests": {"cpu": "1"}})]
    found = refused_at_start(pods, node(), NodeState(pod_level_resources=False))
    assert [each.text for each in found.values()] == [
        "PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled"
    ]


def test_pods_that_a_kubelet_has_accepted_come_before_older_ones() -> None:
    old = running("u1", status={}, created="2025-01-01T00:00:00Z")
    young = running("u2", created="2026-01-01T00:00:00Z")
    assert sorted([old, young], key=seniority) == [young, old]


def test_pods_are_placed_in_order_and_before_all_else_is_judged() -> None:
    placed: list[str] = []

    def place(requested: Pod) -> Rejection | None:
        placed.append(requested.uid)
        return REFUSAL if requested.uid == "u2" else None

    unsafe = {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}
    pods = [
        running("u3"),
        running("u2", container("100")),
        running("u1", securityContext=unsafe),
        running("u4", status={"phase": "Failed"}),
    ]
    found = refused_at_start(pods, node(), NodeState(), place=place)
    assert placed == ["u2", "u3"]
    assert {uid: each.reason for uid, each in found.items()} == {
        "u1": "SysctlForbidden",
        "u2": "TopologyAffinityError",
    }

"""A small node: who gives way to a critical pod, and who keeps its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.admission.test_admission import bound, requesting
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.seen import condition, container_status, status
from tools.env.containerd import Containerd


@pytest.fixture(scope="module")
def small(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node for two pods."""
    node = make_node(session_containerd2, config={"maxPods": 2})
    node.start()
    return node


@pytest.fixture
def room(small: Node) -> Iterator[Node]:
    yield small
    for namespace in ("default", "kube-system"):
        for made in small.api.all("pods", namespace):
            small.api.delete("pods", namespace, made["metadata"]["name"], grace=0)
    small.until(lambda: not small.sandboxes("default"), "no pods left")


def test_a_critical_pod_has_another_give_way(room: Node) -> None:
    room.apply(bound("small", requesting(cpu="10m")), bound("be"), namespace="default")
    room.wait_running("default", "small")
    room.wait_running("default", "be")
    room.apply(bound("third"), namespace="default")
    assert status(room.wait_phase("default", "third", "Failed"))["reason"] == "OutOfpods"
    critical = bound("critical", priorityClassName="system-node-critical")
    room.apply(critical, namespace="kube-system")
    room.wait_running("kube-system", "critical")
    victim = room.pod("default", "be")
    assert status(victim)["phase"] == "Failed"
    assert status(victim)["reason"] == "Preempting"
    assert status(victim)["message"] == "Preempted in order to admit critical pod"
    assert condition(victim, "DisruptionTarget")["reason"] == "TerminationByKubelet"
    room.wait_event("default", "be", "Preempting: Preempted in order to admit critical pod")
    assert status(room.pod("default", "small"))["phase"] == "Running"
    assert room.metric("kubelet_preemptions", preemption_signal="pods") == 1


def test_a_restarted_agent_keeps_the_pods_that_run(room: Node) -> None:
    room.apply(bound("a"), bound("b"), namespace="default")
    before = [room.wait_running("default", name) for name in "ab"]
    room.kill()
    room.apply(bound("aa"), namespace="default")
    room.start_agent()
    room.wait_phase("default", "aa", "Failed")
    for name, old in zip("ab", before, strict=True):
        now = room.wait_running("default", name)
        assert container_status(now)["containerID"] == container_status(old)["containerID"]

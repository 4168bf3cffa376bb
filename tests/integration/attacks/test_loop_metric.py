"""The load that a hostile pod puts on the agent's event loop is visible in its metrics."""

from __future__ import annotations

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod


def test_the_longest_turn_of_the_loop_is_a_metric(node2: Node, namespace: str) -> None:
    node2.apply(pod("plain", container()), namespace=namespace)
    node2.wait_running(namespace, "plain")
    longest = node2.metric("kubeletpy_event_loop_longest_turn_seconds")
    assert 0 < longest < 5
    assert node2.metric("kubeletpy_event_loop_stalls_total") >= 0

"""A pod refers to thousands of objects: it costs the node neither descriptors nor its lease."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.volumes.test_kinds import mount


def made_of(name: str, count: int) -> JSON:
    """A pod with a projected volume of so many configMaps, none of which is there."""
    sources = [{"configMap": {"name": f"{name}-{n}", "optional": True}} for n in range(count)]
    volumes = [{"name": "v", "projected": {"sources": sources}}]
    return pod(name, container("main", FOREVER, volumeMounts=[mount("v", "/v")]), volumes=volumes)


def descriptors(node: Node) -> int:
    return len(list(Path(f"/proc/{node.agent.pid}/fd").iterdir()))


def test_thousands_of_objects_are_refused_and_hundreds_are_not_all_watched(
    node2: Node, namespace: str
) -> None:
    before = descriptors(node2)
    node2.api.create("pods", namespace, bound(made_of("greedy", 4300), node2))
    node2.wait_event(namespace, "greedy", "FailedMount: .*refers to 4300 .* at most 1000")
    node2.api.create("pods", namespace, bound(made_of("large", 900), node2))
    node2.apply(pod("plain", container()), namespace=namespace)
    node2.wait_running(namespace, "plain")
    assert descriptors(node2) < before + 150
    node2.wait_running(namespace, "large", timeout=90)
    assert descriptors(node2) < before + 150


def bound(made: JSON, node: Node) -> JSON:
    return {**made, "spec": {**made["spec"], "nodeName": node.name}}

"""Pods that are bound to the node, and what they do there."""

from __future__ import annotations

from kubeletpy.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod

STAY = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"


def bound(name: str, script: str = "", volume: JSON | None = None) -> JSON:
    mounts = [{"name": "v", "mountPath": "/mem"}] if volume is not None else []
    made = container(script=script, volumeMounts=mounts) if script else container()
    volumes = [{"name": "v", "emptyDir": volume}] if volume is not None else []
    return pod(name, made, nodeName="test-node", volumes=volumes)


def emptied(node: Node) -> None:
    for made in node.api.all("pods", "default"):
        node.api.delete("pods", "default", made["metadata"]["name"], grace=0)
    node.until(lambda: not node.sandboxes("default"), "no pods left")

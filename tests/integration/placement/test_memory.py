"""Memory of certain NUMA nodes, on a real containerd."""

from __future__ import annotations

import json

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tools.env.containerd import Containerd

pytestmark = pytest.mark.needs("cpuset")

STATIC: JSON = {
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "kubeReserved": {"memory": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}


@pytest.fixture(scope="module")
def node(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node that books memory."""
    node = make_node(session_containerd2, config=STATIC)
    node.start()
    return node


def test_memory_is_booked_and_kept(node: Node, namespace: str) -> None:
    limits = {"limits": {"cpu": "100m", "memory": "32Mi"}}
    node.apply(pod("own", container(resources=limits)), namespace=namespace)
    own = node.wait_running(namespace, "own")
    text = node.exec(container_status(own)["containerID"], "cat", "/proc/self/status")[1]
    assert "Mems_allowed_list:\t0\n" in text
    state = json.loads((node.root_dir / "memory_manager_state").read_text())
    name = container_status(own)["name"]
    block = {"numaAffinity": [0], "type": "memory", "size": 32 << 20}
    assert state["entries"] == {own["metadata"]["uid"]: {name: [block]}}
    large = {"limits": {"cpu": "100m", "memory": "4Ti"}}
    node.apply(pod("l", container(resources=large), nodeName=node.name), namespace=namespace)
    refused = node.wait_phase(namespace, "l", "Failed")
    assert status(refused)["reason"] == "TopologyAffinityError"
    node.kill()
    node.start_agent()
    node.wait_ready()
    again = node.wait_running(namespace, "own")
    assert container_status(again)["containerID"] == container_status(own)["containerID"]
    node.api.delete("pods", namespace, "own", grace=1)
    node.wait_removed(namespace, "own")

    def given_back() -> bool:
        return "entries" not in json.loads((node.root_dir / "memory_manager_state").read_text())

    node.until(given_back, "the memory is free again", namespace, "own")

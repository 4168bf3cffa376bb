"""A node whose addresses a cloud controller sets (--cloud-provider=external, no --node-ip)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.conftest import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tools.env.containerd import Containerd

FIRST, SECOND = ("203.0.113.7", "2001:db8::7"), ("::1", "127.0.0.1")
"""The node is reached at the second ones alone."""
NAMESPACE = "cloud"


@pytest.fixture
def cloud_node(make_node: MakeNode, session_containerd2: Containerd) -> Iterator[Node]:
    node = make_node(session_containerd2)
    node.api.start()
    node.start_agent("--cloud-provider=external")
    node.wait_ready()
    node.api.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    yield node
    remove_pods(node, NAMESPACE)


def set_addresses(node: Node, addresses: tuple[str, ...]) -> None:
    """Sets addresses of a node as a cloud controller does."""
    listed = [{"type": "InternalIP", "address": each} for each in addresses]
    patch = {"status": {"addresses": [*listed, {"$patch": "replace"}]}}
    command = ("patch", "node", node.name, "--subresource=status", "-p", json.dumps(patch))
    node.kubectl(*command, namespace=NAMESPACE)


def has_addresses(reported: JSON, addresses: tuple[str, ...]) -> bool:
    """Whether a pod on the host's network has these, and no others."""
    listed = [{"ip": each} for each in addresses]
    return all(reported["status"].get(name) == listed for name in ("hostIPs", "podIPs"))


def test_a_pod_on_the_hosts_network_has_the_addresses_of_the_node(cloud_node: Node) -> None:
    node = cloud_node
    env = [{"name": "IPS", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIPs"}}}]
    reads = container("main", f"echo $IPS; {FOREVER}", env=env)
    anywhere = {"hostNetwork": True, "tolerations": [{"operator": "Exists"}]}
    node.apply(pod("reads", reads, **anywhere), pod("plain", **anywhere), namespace=NAMESPACE)
    reported = node.wait_running(NAMESPACE, "plain")
    assert not {"hostIP", "hostIPs", "podIP", "podIPs"} & reported["status"].keys()
    waiting = node.wait_waiting(NAMESPACE, "reads", "CreateContainerConfigError")
    message = waiting["state"]["waiting"]["message"]
    assert message.startswith("environment variable IPS: status.hostIPs is not known")

    for addresses in FIRST, SECOND:
        set_addresses(node, addresses)
        for name in ("plain", "reads"):
            node.wait_pod(NAMESPACE, name, lambda p: has_addresses(p, addresses), "addresses")  # noqa: B023
    node.wait_running(NAMESPACE, "reads")
    assert node.kubectl("logs", "reads", namespace=NAMESPACE) == f"{','.join(FIRST)}\n"

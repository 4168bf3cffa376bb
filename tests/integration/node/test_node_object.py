"""The Node object in the API: its configuration, and what users add."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

import pytest

from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.containerd import Containerd

CONFIG = {
    "registerWithTaints": [{"key": "special", "value": "yes", "effect": "NoSchedule"}],
    "maxPods": 42,
    "systemReserved": {"cpu": "500m", "memory": "1Gi"},
    "localStorageCapacityIsolation": False,
    "nodeStatusUpdateFrequency": "1s",
    "nodeStatusReportFrequency": "5m",
    "nodeLeaseDurationSeconds": 4,
}


@pytest.fixture(scope="module")
def special(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node with a configuration of its own."""
    node = make_node(session_containerd2, "special", CONFIG)
    node.api.start()
    node.start_agent("--node-labels=disk=ssd,zone=a", "-v=2")
    node.wait_ready()
    return node


def node_object(node: Node) -> Any:
    """The node as it is stored."""
    return node.api.find("nodes", "", node.name)


def test_the_node_shows_its_configuration(special: Node) -> None:
    found = node_object(special)
    assert {"disk": "ssd", "zone": "a", "kubernetes.io/hostname": "special"}.items() <= found[
        "metadata"
    ]["labels"].items()
    assert {"key": "special", "value": "yes", "effect": "NoSchedule"} in found["spec"]["taints"]
    status = found["status"]
    assert status["capacity"]["cpu"] == str(os.cpu_count())
    assert status["capacity"]["pods"] == "42"
    assert status["allocatable"]["cpu"] == f"{(os.cpu_count() or 0) * 1000 - 500}m"
    info = status["nodeInfo"]
    assert info["containerRuntimeVersion"].startswith(f"{special.containerd.kind}://")
    assert info["kernelVersion"] == os.uname().release
    assert info["osImage"].startswith("Debian")
    assert {a["type"]: a["address"] for a in status["addresses"]}["Hostname"] == "special"
    assert any("kubeletpy.local/busybox:1" in image["names"] for image in status["images"])
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    pressure = dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), "False")
    assert conditions == {**pressure, "Ready": "True"}
    parts = special.kubectl("describe", "node", "special")
    assert "special=yes:NoSchedule" in parts


def requesting(name: str, **requests: str) -> Any:
    """A pod bound to the node that requests so much, past the scheduler."""
    resources = {"requests": requests, "limits": requests}
    return pod(name, {**container(), "resources": resources}, nodeName="special")


def test_an_extended_resource_is_given_out(special: Node) -> None:
    name = "vendor.example/gpu"
    what = {"op": "add", "path": "/status/capacity/vendor.example~1gpu", "value": "2"}
    patch = ("patch", "node", "special", "--subresource=status", "--type=json", "-p")
    special.kubectl(*patch, json.dumps([what]))
    special.until(
        lambda: node_object(special)["status"]["allocatable"].get(name) == "2", "it is allocatable"
    )
    version = node_object(special)["metadata"]["resourceVersion"]
    special.apply(
        requesting("fits", **{name: "2"}), requesting("more", **{name: "1"}), namespace="default"
    )
    special.wait_event("default", "more", f"OutOf{name}: ")
    special.wait_running("default", "fits")
    assert node_object(special)["status"]["capacity"][name] == "2"
    assert node_object(special)["metadata"]["resourceVersion"] == version, "no write without news"
    special.kubectl("delete", "pod", "fits", "more")
    special.kubectl(*patch, json.dumps([{"op": "remove", "path": what["path"]}]))
    special.until(
        lambda: name not in node_object(special)["status"]["allocatable"], "it is not allocatable"
    )


def test_the_lease_is_renewed(special: Node) -> None:
    def renewed() -> datetime:
        lease = special.api.find("leases.coordination.k8s.io", "kube-node-lease", "special") or {}
        assert lease["spec"]["holderIdentity"] == "special"
        assert lease["spec"]["leaseDurationSeconds"] == 4
        assert lease["metadata"]["ownerReferences"][0]["kind"] == "Node"
        return datetime.fromisoformat(lease["spec"]["renewTime"])

    first = renewed()
    special.until(lambda: renewed() > first, "the lease's renewal")

"""Resizes that this node can never do: reported, dropped and counted; the pod runs on as it was."""

from __future__ import annotations

import json
import urllib.request

import pytest

from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.node.pods import pod
from tests.integration.node.seen import container_status, status
from tests.integration.resize.test_resize import conditions, resources, sized
from tools.env.containerd import Containerd


@pytest.fixture(scope="module")
def node2(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    gates = {"featureGates": {"InPlacePodLevelResourcesVerticalScaling": False}}
    node = make_node(session_containerd2, config=gates)
    node.start()
    return node


def test_an_infeasible_resize_is_reported(node2: Node, namespace: str) -> None:
    node = node2
    whole = resources("cpu=300m", "cpu=500m")
    node.apply(pod("a", sized("cpu=100m"), resources=whole), namespace=namespace)
    before = node.wait_running(namespace, "a")
    assert status(before)["resources"]["requests"]["cpu"] == "300m"
    patch = json.dumps({"spec": {"resources": {"requests": {"cpu": "400m"}}}})
    resize = ("patch", "pod", "a", "--subresource", "resize", "--patch", patch)
    node.kubectl(*resize, namespace=namespace)
    after = node.wait_pod(
        namespace, "a", lambda made: "PodResizePending" in conditions(made), "infeasible"
    )
    pending = conditions(after)["PodResizePending"]
    assert pending["reason"] == "Infeasible"
    assert pending["message"] == "InPlacePodLevelResourcesVerticalScaling is disabled"
    node.wait_event(namespace, "a", "ResizeInfeasible: Pod resize Infeasible: ")
    assert status(after)["phase"] == "Running"
    assert status(after)["allocatedResources"]["cpu"] == "300m"
    assert container_status(after)["restartCount"] == 0
    scrape = urllib.request.urlopen(f"http://127.0.0.1:{node.health_port}/metrics").read().decode()
    detail = 'reason_detail="plr_feature_gate_off"'
    assert f"kubelet_pod_infeasible_resizes_total{{{detail}}} 1\n" in scrape
    assert 'kubelet_pod_pending_resizes{priority_bucket="normal",reason="infeasible"} 1\n' in scrape

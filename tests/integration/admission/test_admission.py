"""Pods that a node refuses, as kubectl shows them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import status
from tests.integration.node.test_hostile_input import stored


def bound(name: str, *containers: JSON, **spec: Any) -> JSON:
    """A pod that was bound to the node without a check whether it fits."""
    return pod(name, *containers, nodeName="test-node", **spec)


def requesting(**amounts: str) -> JSON:
    return container(resources={"requests": amounts})


REFUSED = [
    (
        "cpu",
        bound("p", requesting(cpu="99")),
        "OutOfcpu",
        r"Node didn't have enough resource: cpu, requested: 99000, used: \d+, capacity: \d+",
    ),
    (
        "apparmor",
        bound("p", securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}),
        "AppArmor",
        r"Cannot enforce AppArmor: AppArmor is not enabled on the host",
    ),
]


@pytest.mark.parametrize(
    ("made", "reason", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_refused_pod_has_the_reason(
    node2: Node, namespace: str, made: JSON, reason: str, message: str
) -> None:
    before = node2.metric("kubelet_admission_rejections_total")
    node2.apply(made, namespace=namespace)
    failed = status(node2.wait_phase(namespace, "p", "Failed"))
    assert failed["reason"] == reason
    assert re.fullmatch(f"Pod was rejected: {message}", failed["message"])
    node2.wait_event(namespace, "p", f"{reason}: {message}")
    assert reason in node2.kubectl("get", "pod", "p", namespace=namespace)
    assert node2.metric("kubelet_admission_rejections_total") == before + 1
    node2.kubectl("label", "pod", "p", "touched=yes", namespace=namespace)
    node2.api.delete("pods", namespace, "p", grace=1)
    node2.wait_removed(namespace, "p")
    assert not node2.sandboxes(namespace)


def test_a_feature_that_the_node_has_not(node2: Node, namespace: str) -> None:
    """The pod is stored past the API's checks, as by an API server that is newer than the node."""
    made = stored("p", namespace, node2.name)
    made["spec"].update(hostNetwork=True, hostUsers=False)
    node2.api.call(lambda registry: registry.store.put("pods", namespace, "p", made))
    found = node2.wait_phase(namespace, "p", "Failed")["status"]
    assert found["reason"] == "PodFeatureUnsupported"
    assert found["message"] == (
        "Pod was rejected: Pod requires node features that are not available: "
        "UserNamespacesHostNetworkSupport"
    )
    notified = (node2.api.find("nodes", "", node2.name) or {})["status"]["declaredFeatures"]
    assert "RestartAllContainersOnContainerExits" in notified

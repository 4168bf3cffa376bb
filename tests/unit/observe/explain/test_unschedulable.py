"""The next step for pods that a scheduler cannot place."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.explain.unplaced import MAX_HINT, OTHERWISE, next_step, wants_host_ports
from kubeletpy_up.controllers.pod_devices import NOT_ALLOCATED


def pod(name: str = "web", node: str = "", **more: Any) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 53, "hostPort": 53}]
    spec: dict[str, Any] = {"containers": [{"name": "a", "ports": ports}], "nodeName": node}
    spec["volumes"] = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "w", "ephemeral": {}},
    ]
    spec["nodeSelector"] = {"disk": "ssd"}
    metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": spec, **more}


@pytest.mark.parametrize(
    ("reasons", "step"),
    [
        (
            "1 node(s) didn't have free ports for the requested pod ports",
            "use another hostPort, or end the pod that has it",
        ),
        (
            'persistentvolumeclaim "data" not found',
            "create PersistentVolumeClaim data in namespace ns",
        ),
        (
            'persistentvolumeclaim "data" is being deleted',
            "use another claim in a new pod: data is being deleted",
        ),
        (
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
            "use another claim in a new pod: the PersistentVolume of data was deleted",
        ),
        (
            "pod has unbound immediate PersistentVolumeClaims. not eligible for preemption",
            "see why they are not bound: kubectl describe pvc -n ns data web-w",
        ),
        (
            "1 node(s) didn't find available persistent volumes to bind",
            "create a PersistentVolume that fits the claim, or name a StorageClass that makes one: "
            "kubectl describe pvc -n ns data web-w",
        ),
        (
            "1 node(s) had untolerated taint(s) {node-role: x}",
            "give the pod a toleration for the taint {node-role: x}, or remove the taint from the "
            "node",
        ),
        (
            "1 node(s) had untolerated taint {gpu: }",
            "give the pod a toleration for the taint {gpu: }, or remove the taint from the node",
        ),
        (
            "1 Insufficient example.com/gpu, 2 Insufficient cpu",
            "request less example.com/gpu, or end other pods that use it; request less cpu, or end "
            "other pods that use it",
        ),
        ("1 Too many pods", "end other pods: a node has as many as its maxPods"),
        (
            "1 node(s) didn't match Pod's node affinity/selector",
            "change the pod's nodeSelector or node affinity (disk=ssd), or the labels of a node: "
            "kubectl get nodes --show-labels",
        ),
        ("1 node(s) were unschedulable", "make a node schedulable: kubectl uncordon NODE"),
        ("no nodes available to schedule pods", "start an agent that registers a node"),
        (
            f'resourceclaim "gpu" is not allocated: {NOT_ALLOCATED}',
            "join a cluster, whose kube-scheduler allocates devices, or write status.allocation of "
            "ResourceClaim gpu",
        ),
        ("something else", OTHERWISE),
        ("", OTHERWISE),
    ],
)
def test_each_reason_has_its_step(reasons: str, step: str) -> None:
    for message in (reasons, f"0/3 nodes are available: {reasons}."):
        assert next_step(pod(), message) == step


def test_the_pods_that_have_the_host_ports_are_named() -> None:
    others = [
        pod("web", "n1"),  # itself
        pod("ended", "n1", status={"phase": "Succeeded"}),
        pod("waits", ""),
        pod("front", "n1"),
        {"metadata": {}, "spec": {"nodeName": "n1"}},
        {**pod("other", "n2"), "spec": {"nodeName": "n2", "containers": [{"name": "a"}]}},
    ]
    message = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested ports."
    assert next_step(pod(), message, others) == (
        "use another hostPort, or end the pod that has it: port 8080/TCP: ns/front on node n1; "
        "port 53/TCP: ns/front on node n1"
    )
    assert len(next_step(pod(), message, [pod("x" * 250, "n" * 250)] * 50)) <= MAX_HINT


def test_which_pods_request_host_ports() -> None:
    assert wants_host_ports(pod())
    assert not wants_host_ports({**pod(), "spec": {"containers": [{"name": "a"}]}})
    assert not wants_host_ports({})

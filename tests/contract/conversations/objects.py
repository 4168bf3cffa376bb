"""Objects that several conversations use."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
CORDONED = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node."""
PODS = "/api/v1/namespaces/{ns}/pods"
IMAGE = "example.test/app:1"


def container(name: str = "c0", /, **more: Any) -> JSON:
    """A container."""
    return {"name": name, "image": IMAGE, **more}


def pod(name: str, *, metadata: JSON | None = None, **spec: Any) -> JSON:
    """A pod without a service account's token, not bound unless the spec has a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"containers": [container()], "automountServiceAccountToken": False, **spec},
    }


def here(name: str, *, metadata: JSON | None = None, **spec: Any) -> JSON:
    """A pod that is bound to the node."""
    return pod(name, metadata=metadata, nodeName="{node}", **spec)


def mirror(name: str, *, metadata: JSON | None = None, **spec: Any) -> JSON:
    """A mirror pod of the node; ``{node_uid}`` is to be kept first."""
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "{node}",
        "uid": "{node_uid}",
        "controller": True,
    }
    annotations = {
        "kubernetes.io/config.mirror": "abc",
        "kubernetes.io/config.hash": "abc",
        "kubernetes.io/config.source": "file",
    }
    made = {"annotations": annotations, "ownerReferences": [owner], **(metadata or {})}
    spec = {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}], **spec}
    pod_ = here(name, metadata=made, **spec)
    del pod_["spec"]["automountServiceAccountToken"]
    return pod_


def condition(kind: str, status: str, **more: Any) -> JSON:
    """A pod condition as the agent sends it: never probed."""
    return {"type": kind, "status": status, "lastProbeTime": None, **more}


def running(name: str = "c0", *, ready: bool = True) -> JSON:
    """A container status."""
    return {
        "name": name,
        "image": IMAGE,
        "imageID": "sha256:0",
        "containerID": "containerd://0",
        "ready": ready,
        "started": True,
        "restartCount": 0,
        "lastState": {},
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }

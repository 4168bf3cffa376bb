"""Pods with users of their own, where the runtime has them; a clear error where it has not."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tools.env.containerd import Containerd

FIRST = 65536
"""The first id that pods have: those below are the node's own."""


def test_a_runtime_without_user_namespaces_is_reported(node: Node, namespace: str) -> None:
    node.apply(pod("a", hostUsers=False), namespace=namespace)
    text = r"can't set `spec.hostUsers: false`, runtime does not support user namespaces"
    node.wait_event(namespace, "a", f"FailedCreatePodSandBox: .*{text}")


@pytest.fixture(scope="module")
def mapping_node(make_node: MakeNode, session_containerd2_idmap: Containerd) -> Node:
    """A node whose runtime has user namespaces."""
    node = make_node(session_containerd2_idmap, name="mapping-node")
    node.start()
    return node


@pytest.mark.needs("user namespaces", "id-mapped tmpfs")
def test_pods_with_users_of_their_own(mapping_node: Node) -> None:
    node, namespace = mapping_node, "users"
    node.api.create("namespaces", "", {"metadata": {"name": namespace}})
    value = base64.b64encode(b"hush").decode()
    node.api.create("secrets", namespace, {"metadata": {"name": "s"}, "data": {"k": value}})
    for name in ("a", "b"):
        node.apply(_pod(name), namespace=namespace)
    ranges = [_check_ids(node, namespace, name) for name in ("a", "b")]
    assert ranges[0] != ranges[1]
    assert node.metric("kubelet_started_user_namespaced_pods_total") == 2
    assert node.metric("kubelet_started_user_namespaced_pods_errors_total") == 0
    node.kill()
    node.start_agent()
    node.until(lambda: node.http("/healthz")[0] == 200, "the new agent's health")
    for name, first in zip(("a", "b"), ranges, strict=True):
        assert _check_ids(node, namespace, name) == first
    remove_pods(node, namespace)


def _pod(name: str) -> JSON:
    mounts = [
        {"name": "mem", "mountPath": "/mem"},
        {"name": "disk", "mountPath": "/disk"},
        {"name": "disk", "mountPath": "/part", "subPath": "of/it"},
        {"name": "s", "mountPath": "/s"},
    ]
    volumes = [
        {"name": "mem", "emptyDir": {"medium": "Memory"}},
        {"name": "disk", "emptyDir": {}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o440}},
    ]
    main = container("main", FOREVER, volumeMounts=mounts)
    context = {"fsGroup": 2000, "runAsUser": 1000}
    return pod(name, main, volumes=volumes, hostUsers=False, securityContext=context)


def _check_ids(node: Node, namespace: str, name: str) -> int:
    """Check the ids that the container and the node see; returns the pod's first id."""
    found = node.wait_running(namespace, name)
    entry = container_status(found)
    assert entry["restartCount"] == 0
    process = Path("/proc", str(node.container_pid(entry["containerID"])))
    inside, outside, length = (process / "uid_map").read_text().split()
    assert (inside, length) == ("0", "65536")
    assert (process / "gid_map").read_text().split() == [inside, outside, length]
    first = int(outside)
    assert first >= FIRST
    assert process.stat().st_uid == first + 1000
    code, stated = node.exec(
        entry["containerID"],
        "sh",
        "-c",
        "touch /mem/x /disk/x /part/x /dev/termination-log && cat /s/k &&"
        " stat -c ' %u:%g' /mem/x /disk/x /part/x && stat -L -c '%u:%g %a' /s/k",
    )
    assert (code, stated) == (0, "hush 1000:2000\n 1000:2000\n 1000:2000\n0:2000 440\n")
    # volumes are the node's: a container's ids are mapped where it mounts them, not on the disk
    volumes = node.root_dir / "pods" / found["metadata"]["uid"] / "volumes"
    for kind in ("mem", "disk"):
        stat = (volumes / "kubernetes.io~empty-dir" / kind / "x").stat()
        assert (stat.st_uid, stat.st_gid) == (1000, 2000)
    return first

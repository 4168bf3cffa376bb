"""Fields of Kubernetes 1.37 behind gates, seen from inside real containers."""

from __future__ import annotations

import pytest

from tests.integration.node.fixtures import MakeNode
from tests.integration.node.machine import Node
from tests.integration.volumes.test_kinds import create, mount, run, sh
from tools.env.containerd import Containerd

GATES = (
    "AtomicWriteVolumeUserFields",
    "DefaultPodSysctls",
    "EmptyDirVolumeMode",
    "VolumeBindMountOptions",
)
SYSCTLS = {"net.ipv4.ip_unprivileged_port_start": "77", "kernel/shm_rmid_forced": "1"}


@pytest.fixture(scope="module", params=["session_containerd2", "session_containerd16"])
def node(request: pytest.FixtureRequest, make_node: MakeNode) -> Node:
    """A node on each containerd with the gates on."""
    containerd: Containerd = request.getfixturevalue(request.param)
    config = {"featureGates": dict.fromkeys(GATES, True), "defaultPodSysctls": SYSCTLS}
    made = make_node(containerd, config=config)
    made.start()
    return made


def test_modes_and_owners_and_sysctls(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "1", "b": "2"})
    keys = [{"key": "a", "path": "a", "user": 0, "mode": 0o400}, {"key": "b", "path": "b"}]
    items = [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]
    fields = {"downwardAPI": {"items": items}}
    found = run(
        node,
        namespace,
        {"name": "disk", "emptyDir": {"mode": 0o750}},
        {"name": "memory", "emptyDir": {"mode": 0o1770, "medium": "Memory"}},
        {"name": "plain", "emptyDir": {}},
        {"name": "cfg", "configMap": {"name": "cfg", "items": keys, "defaultUser": 1001}},
        {"name": "all", "projected": {"sources": [fields], "defaultUser": 5}},
        mounts=[mount(each, f"/{each}") for each in ("disk", "memory", "plain", "cfg", "all")],
        securityContext={"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]},
    )
    assert sh(node, found, "stat -c '%a' /disk /memory /plain") == "750\n1770\n777\n"
    owners = sh(node, found, "stat -L -c '%u %a' /cfg/a /cfg/b /all/n")
    assert owners == "0 400\n1001 644\n5 644\n"
    read = "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced"
    assert sh(node, found, read) == "77\n0\n", "the pod's own value wins"

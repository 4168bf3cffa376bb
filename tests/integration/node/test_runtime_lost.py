"""The runtime dies, hangs, returns: the node reports it, and running containers are left alone."""

from __future__ import annotations

import time
from pathlib import Path

from kubeletpy.cli import explain
from tests.integration.lifecycle.command import command_output, explained, run, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import pod
from tests.integration.node.seen import container_status, is_ready


def test_the_runtime_dies_and_returns(node: Node, namespace: str) -> None:
    node.apply(pod("lives"), namespace=namespace)
    before = container_status(node.wait_running(namespace, "lives"))
    process = node.container_pid(before["containerID"])
    node.containerd.kill()
    lost_at = time.time()
    try:
        lost = node.wait_condition("Ready", "False")
        assert lost["reason"] == "KubeletNotReady"
        assert "container runtime is down" in lost["message"]
        assert "NotReady" in node.kubectl("get", "node", node.name)
        code, text = node.http("/healthz")
        assert code == 500
        assert "runtime" in text
        assert Path(f"/proc/{process}").exists(), "its containers live on"
        node.apply(pod("waits", nodeName=node.name), namespace=namespace)
        explained_as_lost(node, namespace, lost_at)
    finally:
        node.containerd.start()
    node.wait_ready()
    node.wait_running(namespace, "waits")
    found = node.pod(namespace, "lives")
    after = container_status(found)
    assert is_ready(found)
    assert (after["containerID"], after["state"]) == (before["containerID"], before["state"])
    assert after["restartCount"] == 0
    assert node.http("/healthz")[0] == 200


def explained_as_lost(node: Node, namespace: str, lost_at: float) -> None:
    """Check explain for a pod: cause, since when, wait and next step; and for the node."""
    until_verdict(node, namespace, "lives", "the container runtime can't be used")
    found = explained(node, namespace, "lives")
    assert (found["cause"], found["waits"][0]["kind"]) == ("runtime", "runtime")
    assert -15 < found["first_seen"] - lost_at < 3, "since the last check before"
    assert "see whether the container runtime at " in found["hint"]
    first = f"node {node.name}: container runtime is down"
    assert run(node, "explain").startswith(first)
    stated = command_output(explain.main, node, f"{namespace}/waits")
    assert f"this node has not taken up pod {namespace}/waits yet" in stated
    assert first in stated


def test_the_runtime_hangs(node2: Node, namespace: str) -> None:
    """The runtime does not answer but its socket is there: SIGTERM is obeyed promptly anyway."""
    node2.apply(pod("lives"), namespace=namespace)
    before = container_status(node2.wait_running(namespace, "lives"))
    node2.containerd.pause()
    try:
        node2.apply(pod("waits"), namespace=namespace)
        assert node2.terminate() < 3.5
        node2.start_agent()
    finally:
        node2.containerd.resume()
    node2.wait_running(namespace, "waits")
    after = container_status(node2.pod(namespace, "lives"))
    assert after["containerID"] == before["containerID"], node2.story(namespace, "lives")

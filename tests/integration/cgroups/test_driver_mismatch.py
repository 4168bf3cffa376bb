"""A runtime with another cgroup driver than the agent's, and one with the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.lifecycle.command import run
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import pod
from tools.env.containerd import Containerd, programs


@pytest.fixture(scope="module")
def containerd(session_dir: Path) -> Iterator[Containerd]:
    """One of its own, which does not report its driver."""
    instance = Containerd(session_dir / "d", programs(1), systemd_cgroup=True)
    try:
        instance.start()
        instance.import_images()
        yield instance
    finally:
        instance.stop()
    assert instance.remove() == []


@pytest.fixture(scope="module")
def make_node(containerd: Containerd, make_node: MakeNode) -> MakeNode:
    """Ends before its containerd does."""
    return make_node


def mismatches(node: Node) -> list[str]:
    """The node's events about it."""
    begin = "CgroupDriverMismatch: "
    stated = node.events("default", node.name)
    return [event.removeprefix(begin) for event in stated if event.startswith(begin)]


def test_a_runtime_on_systemd_is_named_until_it_is_on_cgroupfs(
    make_node: MakeNode, containerd: Containerd
) -> None:
    node = make_node(containerd)
    node.start()
    node.api.create("namespaces", "", {"metadata": {"name": "mixed"}})
    node.apply(pod("a"), namespace="mixed")
    problem = node.wait_condition("Ready", "False")["message"]
    assert problem == (
        "cgroup driver mismatch: the container runtime uses systemd, but the agent's configuration "
        'has cgroupDriver cgroupfs: set "cgroupDriver: systemd" there, or "SystemdCgroup = false" '
        "in containerd's configuration (options of runtime runc)"
    )
    node.until(lambda: mismatches(node) == [problem], "an event")
    assert problem in run(node, "explain", "--node")
    assert sum("cgroup driver mismatch" in line for line in node.log_lines()) == 1
    containerd.systemd_cgroup = False
    containerd.restart()
    node.wait_ready()
    node.wait_running("mixed", "a")
    assert node.condition("Ready")["status"] == "True"
    assert mismatches(node) == [problem]
    assert "mismatch" not in run(node, "explain", "--node")
    remove_pods(node, "mixed")


def test_no_mismatch_is_reported_when_both_are_on_cgroupfs(node: Node, namespace: str) -> None:
    node.apply(pod("a"), namespace=namespace)
    node.wait_running(namespace, "a")
    assert node.condition("Ready")["status"] == "True"
    assert mismatches(node) == []
    assert not [line for line in node.log_lines() if "cgroup driver mismatch" in line]

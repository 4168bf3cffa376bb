"""Ends of pods: interrupted, of sidecars, and of machines that lose all their containers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.integration.lifecycle.command import explained, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, is_ready, status, terminated
from tools.env.cri import RawRuntime

LEAVES = "trap 'sleep 1; exit 7' TERM; while :; do sleep 0.1; done"
"""Takes a second to end, with exit code 7."""


@pytest.fixture
def dead_registry() -> Iterator[str]:
    """A registry that takes connections and never answers; its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def nothing_runs(node: Node, namespace: str) -> bool:
    with RawRuntime(node.containerd.socket) as raw:
        running = [
            record
            for record in raw.containers()
            if record.labels.get("io.kubernetes.pod.namespace") == namespace and record.state == 1
        ]
    return not running and not [s for s in node.sandboxes(namespace) if s.state == 0]


def test_deleted_while_its_image_is_pulled(node: Node, namespace: str, dead_registry: str) -> None:
    """Nobody waits for the pull; a new pod of the name is not in its way either."""
    image = {"name": "main", "image": f"{dead_registry}/never:1"}
    node.apply(pod("pulls", image), namespace=namespace)
    node.wait_event(namespace, "pulls", "Pulling: Pulling image")
    until_verdict(node, namespace, "pulls", "is being pulled")
    node.kubectl("delete", "pod", "pulls", "--wait=false", namespace=namespace)
    node.wait_removed(namespace, "pulls")
    node.until(lambda: nothing_runs(node, namespace), "nothing that runs")
    node.apply(pod("pulls"), namespace=namespace)
    node.wait_running(namespace, "pulls")


def test_deleted_while_its_sandbox_is_being_made(node: Node, namespace: str) -> None:
    """The runtime stands still meanwhile, and makes the sandbox after all when it goes on."""
    node.containerd.pause()
    try:
        node.apply(pod("half"), namespace=namespace)
        until_verdict(node, namespace, "half", "the runtime is creating the sandbox")
        node.kubectl("delete", "pod", "half", "--wait=false", namespace=namespace)
        until_verdict(node, namespace, "half", "terminating for")
    finally:
        node.containerd.resume()
    node.wait_removed(namespace, "half")
    node.until(lambda: nothing_runs(node, namespace), "nothing left of it", namespace)
    assert not any(e.startswith("Created") for e in node.events(namespace, "half"))


@pytest.mark.parametrize("version", ["old", "new"])
def test_drain_with_kubectl(node: Node, namespace: str, version: str) -> None:
    node.apply(pod("one", container("main", LEAVES)), pod("two"), namespace=namespace)
    for name in ("one", "two"):
        node.wait_running(namespace, name)
    arguments = ["drain", node.name, "--force", "--ignore-daemonsets", "--timeout=60s"]
    try:
        node.kubectl(*arguments, version=version)
        assert node.api.all("pods", namespace) == []
        assert nothing_runs(node, namespace)
        assert "SchedulingDisabled" in node.kubectl("get", "nodes", version=version)
        node.apply(pod("late", nodeName=node.name), namespace=namespace)
        node.wait_running(namespace, "late")  # bound pods pass: only the scheduler is held off
    finally:
        node.kubectl("uncordon", node.name, version=version)


def test_debug_with_a_target(node: Node, namespace: str) -> None:
    """kubectl debug adds a container that sees the target's processes, while the pod goes on."""
    node.apply(pod("host", container("main", FOREVER), container("other")), namespace=namespace)
    before = node.wait_running(namespace, "host")
    script = "cat /proc/1/cmdline | tr '\\0' ' '; exit 9"
    node.kubectl(
        *("debug", "host", "--image", before["spec"]["containers"][0]["image"]),
        *("--target", "main", "--container", "look", "--profile", "general"),
        *("--", "sh", "-c", script),
        namespace=namespace,
        version="new",
    )
    after = node.wait_pod(
        namespace,
        "host",
        lambda found: terminated(container_status(found, "look")),
        "with its debug container ended",
    )
    assert terminated(container_status(after, "look"))["exitCode"] == 9
    assert "trap" in node.logs(after, "look")
    assert is_ready(after)
    for name in ("main", "other"):
        was, now = container_status(before, name), container_status(after, name)
        assert now["containerID"] == was["containerID"]
    assert status(after)["phase"] == "Running"
    reported = {
        view["name"]: view["kind"] for view in explained(node, namespace, "host")["containers"]
    }
    assert reported["look"] == "ephemeral"

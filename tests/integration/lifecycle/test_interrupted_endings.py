"""Pods that end while something else is in their way: a pull, a sandbox being made, no API, a
killed agent, an eviction. Each ends, leaves nothing, and its true end is reported."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.integration.lifecycle.command import explained, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, FOREVER, container, pod
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
    begun = time.monotonic()
    node.kubectl("delete", "pod", "pulls", "--wait=false", namespace=namespace)
    node.wait_removed(namespace, "pulls", timeout=10)
    assert time.monotonic() - begun < 5
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


def test_the_api_is_unreachable_while_a_pod_ends(node: Node, namespace: str) -> None:
    node.apply(pod("ends", container("main", LEAVES)), namespace=namespace)
    node.wait_running(namespace, "ends")
    node.kubectl("delete", "pod", "ends", "--wait=false", namespace=namespace)
    node.wait_event(namespace, "ends", "Killing: Stopping container main")
    node.api.stop()
    try:
        node.until(lambda: nothing_runs(node, namespace), "its end without an API", namespace)
        verdict = until_verdict(node, namespace, "ends", "still in the API")
        assert "its status has not reached the API" in verdict
    finally:
        node.api.start()
    node.wait_removed(namespace, "ends")
    node.wait_ready()


@pytest.mark.parametrize("again", [False, True], ids=["waits", "dies-again"])
def test_the_agent_is_killed_in_the_middle_of_its_end(
    node: Node, namespace: str, again: bool
) -> None:
    """The next agent continues the termination, and reports the true last state."""
    left = pod("torn", container("main", LEAVES), container("deaf", DEAF))
    left["spec"]["terminationGracePeriodSeconds"] = 3
    left["metadata"]["finalizers"] = ["example.com/look"]
    node.apply(left, namespace=namespace)
    node.wait_running(namespace, "torn")
    node.kubectl("delete", "pod", "torn", "--wait=false", namespace=namespace)
    node.wait_event(namespace, "torn", "Killing: Stopping container")
    node.kill()
    node.start_agent()
    if again:
        until_verdict(node, namespace, "torn", "terminating for")
        node.kill()
        node.start_agent()
    ended = node.wait_pod(
        namespace,
        "torn",
        lambda found: all(terminated(container_status(found, name)) for name in ("main", "deaf")),
        "with both ends reported",
    )
    assert terminated(container_status(ended, "main"))["exitCode"] == 7
    assert terminated(container_status(ended, "deaf"))["exitCode"] == 137
    node.until(lambda: nothing_runs(node, namespace), "nothing that runs")
    node.kubectl(
        "patch", "pod", "torn", "--type=merge", "-p", '{"metadata":{"finalizers":null}}',
        namespace=namespace,
    )  # fmt: skip
    node.wait_removed(namespace, "torn")


def test_an_eviction_is_a_deletion_with_grace(node: Node, namespace: str) -> None:
    node.apply(pod("evicted", container("main", LEAVES)), namespace=namespace)
    node.wait_running(namespace, "evicted")
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "evicted", "namespace": namespace},
        "deleteOptions": {"gracePeriodSeconds": 20},
    }
    program, environment = node.kubectl_program("new")
    path = f"/api/v1/namespaces/{namespace}/pods/evicted/eviction"
    done = subprocess.run(
        [str(program), "create", "--raw", path, "-f", "-"],
        input=json.dumps(eviction),
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    going = node.pod(namespace, "evicted")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 20
    node.wait_removed(namespace, "evicted", timeout=10)


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

"""Ends of pods: interrupted, of sidecars, and of machines that lose all their containers."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import explained, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, is_ready, running, status, terminated
from tools.env.cri import RawRuntime


def is_ready_anew(old_id: str, found: JSON) -> bool:
    """Ready with another container than that one."""
    return is_ready(found) and bool(container_status(found)["containerID"] != old_id)


def test_counts_and_last_states_outlive_the_loss_of_all_containers(
    node: Node, namespace: str
) -> None:
    """The machine restarts with a runtime that has kept nothing."""
    once = "test -f /data/done || { touch /data/done; exit 7; }; " + FOREVER
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    node.apply(
        pod(
            "survivor",
            container("main", once, **mounts),
            volumes=[{"name": "data", "emptyDir": {}}],
        ),
        pod("fresh"),
        pod("done", container("main", "exit 0"), restartPolicy="Never"),
        namespace=namespace,
    )
    before = container_status(
        node.wait_pod(
            namespace,
            "survivor",
            lambda found: is_ready(found) and container_status(found)["restartCount"] == 1,
            "restarted once",
        )
    )
    assert terminated(before, "lastState")["exitCode"] == 7
    fresh = container_status(node.wait_running(namespace, "fresh"))
    node.wait_phase(namespace, "done", "Succeeded")
    node.kill()
    with RawRuntime(node.containerd.socket) as raw:
        raw.remove_all()
    node.start_agent()
    for name, known in (("survivor", before), ("fresh", fresh)):
        again = partial(is_ready_anew, known["containerID"])
        after = container_status(node.wait_pod(namespace, name, again, "running again"))
        assert running(after)
        assert after["restartCount"] == known["restartCount"] + 1
        lost = terminated(after, "lastState")
        if name == "fresh":
            assert (lost["exitCode"], lost["reason"]) == (137, "ContainerStatusUnknown")
        else:
            # what was known of an end is kept before what is only guessed
            assert (lost["exitCode"], lost["reason"]) == (7, "Error")
    done = node.pod(namespace, "done")
    assert status(done)["phase"] == "Succeeded"
    assert terminated(container_status(done))["exitCode"] == 0


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


SLOW = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1 & wait $!; done"
"""Ends two seconds after SIGTERM."""


def sidecar(name: str, script: str = FOREVER) -> JSON:
    return container(name, script, restartPolicy="Always")


def test_sidecars_end_after_the_others_the_last_first(node: Node, namespace: str) -> None:
    """A finalizer keeps the last status to be read."""
    made = pod(
        "order",
        container("main", SLOW),
        initContainers=[sidecar("first", SLOW), container("i", "exit 0"), sidecar("second", SLOW)],
        terminationGracePeriodSeconds=30,
    )
    made["metadata"]["finalizers"] = ["example.com/hold"]
    node.apply(made, namespace=namespace)
    node.wait_running(namespace, "order")
    node.kubectl("delete", "pod", "order", "--wait=false", namespace=namespace)
    names = ("main", "second", "first")
    ended = node.wait_pod(
        namespace,
        "order",
        lambda p: all(terminated(container_status(p, name)) for name in names),
        "ended",
    )
    ends = [parse_time(terminated(container_status(ended, n))["finishedAt"]) for n in names]
    codes = [terminated(container_status(ended, n))["exitCode"] for n in names]
    node.kubectl(
        "patch", "pod", "order", "--type=merge", "-p", '{"metadata":{"finalizers":null}}',
        namespace=namespace,
    )  # fmt: skip
    assert codes == [0, 0, 0]
    assert ends[1] - ends[0] >= 1
    assert ends[2] - ends[1] >= 1
    node.wait_removed(namespace, "order")


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
def test_a_job_ends_with_its_main_container(
    node: Node, namespace: str, code: int, phase: str
) -> None:
    proxy = "trap 'exit 9' TERM; while :; do sleep 1 & wait $!; done"
    node.apply(
        pod(
            "job",
            container("main", f"sleep 1; exit {code}"),
            initContainers=[sidecar("log"), sidecar("proxy", proxy)],
            restartPolicy="Never",
        ),
        namespace=namespace,
    )
    ended = node.wait_phase(namespace, "job", phase)
    assert terminated(container_status(ended, "main"))["exitCode"] == code
    # the exit code of a sidecar does not affect the job
    assert terminated(container_status(ended, "proxy"))["exitCode"] == 9
    assert terminated(container_status(ended, "log"))["exitCode"] == 0
    for name in ("main", "log", "proxy"):
        assert container_status(ended, name)["restartCount"] == 0
    node.until(lambda: all(s.state for s in node.sandboxes(namespace)), "the sandbox stopped")
    assert status(node.pod(namespace, "job"))["phase"] == phase


@pytest.mark.needs("sandbox processes")
def test_a_lost_sandbox_counts_as_a_restart_of_each(node: Node, namespace: str) -> None:
    init = [container("i", "exit 0"), container("side", restartPolicy="Always")]
    node.apply(pod("box", container("main"), initContainers=init), namespace=namespace)
    node.wait_running(namespace, "box")
    (sandbox,) = node.sandboxes(namespace)
    os.kill(node.container_pid(sandbox.id), signal.SIGKILL)

    def counts() -> set[int]:
        found = node.pod(namespace, "box")
        return {container_status(found, name)["restartCount"] for name in ("i", "side", "main")}

    node.wait_event(namespace, "box", "SandboxChanged: Pod sandbox changed, it will be killed and")
    node.until(
        lambda: counts() == {1} and is_ready(node.pod(namespace, "box")),
        "each restarted once",
        namespace,
        "box",
    )
    assert {s.metadata.attempt for s in node.sandboxes(namespace) if s.state == 0} == {1}
    after = node.pod(namespace, "box")
    for name in ("side", "main"):
        assert running(container_status(after, name))
        assert terminated(container_status(after, name), "lastState")["exitCode"] == 0
    node.kill()
    node.start_agent()
    node.apply(pod("later"), namespace=namespace)
    node.wait_running(namespace, "later")
    assert counts() == {1}

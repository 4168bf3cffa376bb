"""Pods that have a reason not to go, and machines that lose all their containers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import explained, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, FOREVER, container, pod
from tests.integration.node.seen import container_status, is_ready, running, status, terminated
from tools.env.cri import RawRuntime

HELD = "held"
"""Name and namespace of a pod that a finalizer keeps, since before the first test."""


def released(node: Node) -> None:
    """Remove the finalizer, and wait until the pod is removed."""
    node.kubectl(
        "patch", "pod", HELD, "--type=merge", "-p", '{"metadata":{"finalizers":null}}',
        namespace=HELD,
    )  # fmt: skip
    node.wait_removed(HELD, HELD)


@pytest.fixture(scope="module", autouse=True)
def held(node: Node) -> Iterator[None]:
    """A node waits a while before it complains about a pod: other tests run meanwhile."""
    node.api.create("namespaces", "", {"metadata": {"name": HELD}})
    made = pod(HELD)
    made["metadata"]["finalizers"] = ["example.com/hold"]
    node.apply(made, namespace=HELD)
    node.wait_running(HELD, HELD)
    node.kubectl("delete", "pod", HELD, "--wait=false", namespace=HELD)
    until_verdict(node, HELD, HELD, "example.com/hold")
    yield
    if node.pod(HELD, HELD):
        released(node)


def test_a_runtime_that_hangs_is_named_and_then_the_pod_goes(node: Node, namespace: str) -> None:
    node.apply(pod("stuck"), namespace=namespace)
    node.wait_running(namespace, "stuck")
    node.containerd.pause()
    try:
        node.kubectl("delete", "pod", "stuck", "--wait=false", namespace=namespace)
        verdict = until_verdict(node, namespace, "stuck", "terminating for")
        assert "container main has not ended" in verdict or "runtime" in verdict
        time.sleep(3)
        assert node.pod(namespace, "stuck")
    finally:
        node.containerd.resume()
    node.wait_removed(namespace, "stuck")


def test_a_deadline_comes_when_it_is_due(node: Node, namespace: str) -> None:
    node.apply(
        pod("dated", activeDeadlineSeconds=4),
        pod("pulling", {"name": "main", "image": "127.0.0.1:1/none:1"}, activeDeadlineSeconds=4),
        namespace=namespace,
    )
    for name in ("dated", "pulling"):
        ended = node.wait_phase(namespace, name, "Failed")
        late = time.time() - parse_time(status(ended)["startTime"]) - 4
        assert status(ended)["reason"] == "DeadlineExceeded"
        assert 0 <= late < 5, (name, late)


def test_a_finalizer_is_named(node: Node) -> None:
    verdict = until_verdict(node, HELD, HELD, "example.com/hold")
    assert verdict.startswith("stopped and released, but still in the API")
    node.wait_event(HELD, HELD, "StillTerminating: .*finalizer example.com/hold", timeout=30)
    released(node)


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


def test_restart_all_containers(node: Node, namespace: str) -> None:
    rule = {
        "action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]},
    }
    once = "test -f /data/done || { touch /data/done; sleep 1; exit 42; }; " + FOREVER
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    node.apply(
        pod(
            "together",
            container("asks", once, restartPolicy="Never", restartPolicyRules=[rule], **mounts),
            container("other"),
            initContainers=[container("first", "exit 0")],
            volumes=[{"name": "data", "emptyDir": {}}],
        ),
        namespace=namespace,
    )
    found = node.wait_pod(
        namespace,
        "together",
        lambda found: (
            is_ready(found)
            and all(e["restartCount"] == 1 for e in status(found)["containerStatuses"])
        ),
        "all restarted once",
    )
    assert container_status(found, "first")["restartCount"] == 1
    assert len(node.sandboxes(namespace)) == 1


def test_the_same_name_again_while_the_old_one_ignores_its_end(node: Node, namespace: str) -> None:
    node.apply(pod("name", container("main", DEAF)), namespace=namespace)
    old = node.wait_running(namespace, "name")
    node.kubectl("delete", "pod", "name", "--force", "--grace-period=0", namespace=namespace)
    node.wait_removed(namespace, "name")
    node.apply(pod("name"), namespace=namespace)
    new = node.wait_running(namespace, "name")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    node.until(
        lambda: (
            {s.metadata.uid for s in node.sandboxes(namespace) if s.state == 0}
            == {new["metadata"]["uid"]}
        ),
        "only the new pod in the runtime",
    )
    assert explained(node, namespace, "name")["uid"] == new["metadata"]["uid"]

"""Deletions by users and lifecycle hooks, on both containerds."""

from __future__ import annotations

import time

from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, FOREVER, container, pod, serving
from tests.integration.node.seen import container_status, running, status


def test_a_signal_obeyed(node: Node, namespace: str) -> None:
    slow_end = "trap 'echo ending; sleep 1; exit 3' TERM; while :; do sleep 1 & wait $!; done"
    node.apply(
        pod("obeys", container("main", slow_end), terminationGracePeriodSeconds=30),
        namespace=namespace,
    )
    node.wait_running(namespace, "obeys")
    node.kubectl("delete", "pod", "obeys", "--wait=false", namespace=namespace)
    about = node.pod(namespace, "obeys")["metadata"]
    assert about["deletionGracePeriodSeconds"] == 30
    row = node.kubectl("get", "pod", "obeys", "--no-headers", namespace=namespace)
    assert row.split()[2] == "Terminating"
    node.wait_removed(namespace, "obeys", timeout=25)
    assert "Killing: Stopping container main" in node.events(namespace, "obeys")
    records = node.containers(namespace, "obeys")
    assert not [r for r in records.values() if r.state == 1], "no container outlives its pod"


def test_a_signal_ignored(node: Node, namespace: str) -> None:
    node.apply(
        pod("deaf", container("main", DEAF), terminationGracePeriodSeconds=2), namespace=namespace
    )
    node.wait_running(namespace, "deaf")
    began = time.monotonic()
    node.kubectl("delete", "pod", "deaf", namespace=namespace)
    assert time.monotonic() - began > 1.8


def test_deleted_while_it_starts(node: Node, namespace: str) -> None:
    for number in range(3):
        node.apply(pod(f"brief{number}", terminationGracePeriodSeconds=1), namespace=namespace)
        node.api.delete("pods", namespace, f"brief{number}")
    for number in range(3):
        node.wait_removed(namespace, f"brief{number}")
    assert not [s for s in node.sandboxes(namespace) if s.state == 0]


def test_a_new_pod_with_the_old_name(node: Node, namespace: str) -> None:
    """The new pod starts while the old one still ends, and that end does not touch it."""
    node.apply(
        pod("again", container("main", DEAF), terminationGracePeriodSeconds=2), namespace=namespace
    )
    old = node.wait_running(namespace, "again")
    node.kubectl("delete", "pod", "again", "--grace-period=0", "--force", namespace=namespace)
    assert node.pod(namespace, "again") == {}
    node.apply(pod("again", container("main", FOREVER)), namespace=namespace)
    new = node.wait_running(namespace, "again")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    node.until(
        lambda: len([s for s in node.sandboxes(namespace) if s.state == 0]) == 1,
        "only the new pod's sandbox",
    )
    after = container_status(node.pod(namespace, "again"))
    assert after["containerID"] == container_status(new)["containerID"]
    assert (after["restartCount"], bool(running(after))) == (0, True)


def test_a_namespace_with_all_its_pods(node: Node, namespace: str) -> None:
    node.kubectl("create", "namespace", f"{namespace}-x")
    node.apply(pod("a"), pod("b"), namespace=f"{namespace}-x")
    node.wait_running(f"{namespace}-x", "a")
    node.kubectl("delete", "namespace", f"{namespace}-x")
    assert node.api.all("pods", f"{namespace}-x") == []
    assert not [s for s in node.sandboxes(f"{namespace}-x") if s.state == 0]


def test_post_start_comes_before_ready(node: Node, namespace: str) -> None:
    hook = {"exec": {"command": ["sh", "-c", "sleep 2; touch /tmp/hooked"]}}
    node.apply(pod("hooked", container(lifecycle={"postStart": hook})), namespace=namespace)
    ready = container_status(node.wait_running(namespace, "hooked"))
    assert node.exec(ready["containerID"], "ls", "/tmp/hooked")[0] == 0


def test_pre_stop_by_http_reaches_the_server_first(node: Node, namespace: str) -> None:
    hook = {"httpGet": {"path": "/ok", "port": "web"}}
    node.apply(
        pod(
            "web",
            container(
                script=serving("ok"),
                ports=[{"name": "web", "containerPort": 8080}],
                lifecycle={"preStop": hook, "postStart": {"sleep": {"seconds": 0}}},
            ),
        ),
        namespace=namespace,
    )
    web = node.wait_running(namespace, "web")
    log = node.log_dir(web) / "main" / "0.log"
    with log.open() as lines:  # open: the file goes with the pod
        node.kubectl("delete", "pod", "web", namespace=namespace)
        node.wait_removed(namespace, "web")
        assert "response:200" in lines.read()


def test_a_hook_after_a_crash_of_the_agent(node: Node, namespace: str) -> None:
    """The pod is deleted while no agent runs: the next one runs the hook."""
    hook = {"exec": {"command": ["sh", "-c", "echo hooked > /proc/1/fd/1; sleep 2"]}}
    node.apply(
        pod("later", container(script=FOREVER, lifecycle={"preStop": hook})), namespace=namespace
    )
    later = node.wait_running(namespace, "later")
    assert running(container_status(later)), status(later)
    log = node.log_dir(later) / "main" / "0.log"
    node.kill()
    node.kubectl("delete", "pod", "later", "--wait=false", namespace=namespace)
    node.start_agent()
    node.until(lambda: "hooked" in log.read_text(), "the hook", namespace, "later")
    node.wait_removed(namespace, "later")

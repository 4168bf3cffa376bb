"""Deletions by users: graceful, shortened, forced, repeated; on both containerds."""

from __future__ import annotations

import time

from kubeletpy_up.storage.history import Change
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, FOREVER, container, pod
from tests.integration.node.seen import container_status, running, terminated


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
    node.wait_removed(namespace, "obeys", timeout=10)
    assert "Killing: Stopping container main" in node.events(namespace, "obeys")
    records = node.containers(namespace, "obeys")
    assert not [r for r in records.values() if r.state == 1], "no container outlives its pod"


def test_the_end_is_reported_before_the_pod_goes(node: Node, namespace: str) -> None:
    """Among the states that the API had of a deleted pod is one with its exit code."""
    changes: list[Change] = []
    node.api.call(lambda registry: registry.store.subscribe(changes.append))
    end = "trap 'exit 8' TERM; while :; do sleep 1 & wait $!; done"
    node.apply(pod("watched", container("main", end)), namespace=namespace)
    node.wait_running(namespace, "watched")
    node.kubectl("delete", "pod", "watched", namespace=namespace)
    codes = [
        terminated(container_status(change.object)).get("exitCode")
        for change in changes
        if change.resource == "pods" and change.type == "MODIFIED"
    ]
    assert codes[-1] == 8
    assert changes[-1].type == "DELETED" or changes[-1].resource != "pods"


def test_a_signal_ignored(node: Node, namespace: str) -> None:
    node.apply(
        pod("deaf", container("main", DEAF), terminationGracePeriodSeconds=2), namespace=namespace
    )
    node.wait_running(namespace, "deaf")
    began = time.monotonic()
    node.kubectl("delete", "pod", "deaf", namespace=namespace)
    took = time.monotonic() - began
    assert 1.8 < took < 6, took


def test_a_grace_period_shortened(node: Node, namespace: str) -> None:
    node.apply(
        pod("long", container("main", DEAF), terminationGracePeriodSeconds=600),
        namespace=namespace,
    )
    node.wait_running(namespace, "long")
    node.kubectl("delete", "pod", "long", "--wait=false", namespace=namespace)
    node.wait_event(namespace, "long", "Killing: Stopping container main")
    assert node.pod(namespace, "long")["metadata"]["deletionGracePeriodSeconds"] == 600
    node.kubectl("delete", "pod", "long", "--grace-period=1", "--wait=false", namespace=namespace)
    node.wait_removed(namespace, "long", timeout=10)


def test_forced(node: Node, namespace: str) -> None:
    """The object goes at once; the containers follow when their own grace period is over."""
    node.apply(
        pod("forced", container("main", DEAF), terminationGracePeriodSeconds=2),
        namespace=namespace,
    )
    node.wait_running(namespace, "forced")
    node.kubectl("delete", "pod", "forced", "--grace-period=0", "--force", namespace=namespace)
    assert node.pod(namespace, "forced") == {}
    node.until(
        lambda: not [r for r in node.containers(namespace, "forced").values() if r.state == 1],
        "the end of the forced pod's container",
        timeout=10,
    )
    node.until(
        lambda: not [s for s in node.sandboxes(namespace) if s.state == 0],
        "the end of the forced pod's sandbox",
        timeout=10,
    )


def test_deleted_while_it_starts(node: Node, namespace: str) -> None:
    for number in range(3):
        node.apply(pod(f"brief{number}", terminationGracePeriodSeconds=1), namespace=namespace)
        node.api.delete("pods", namespace, f"brief{number}")
    for number in range(3):
        node.wait_removed(namespace, f"brief{number}", timeout=15)
    assert not [s for s in node.sandboxes(namespace) if s.state == 0]


def test_a_new_pod_with_the_old_name(node: Node, namespace: str) -> None:
    """The new pod starts while the old one still ends, and that end does not touch it."""
    node.apply(
        pod("again", container("main", DEAF), terminationGracePeriodSeconds=2),
        namespace=namespace,
    )
    old = node.wait_running(namespace, "again")
    node.kubectl("delete", "pod", "again", "--grace-period=0", "--force", namespace=namespace)
    node.apply(pod("again", container("main", FOREVER)), namespace=namespace)
    new = node.wait_running(namespace, "again")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    node.until(
        lambda: len([s for s in node.sandboxes(namespace) if s.state == 0]) == 1,
        "only the new pod's sandbox",
        timeout=10,
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


def test_all_at_once(node: Node, namespace: str) -> None:
    node.apply(*(pod(f"p{number}") for number in range(8)), namespace=namespace)
    for number in range(8):
        node.wait_running(namespace, f"p{number}")
    node.kubectl("delete", "pods", "--all", namespace=namespace)
    assert node.api.all("pods", namespace) == []


def test_a_pod_that_has_ended(node: Node, namespace: str) -> None:
    node.apply(pod("done", container("main", "exit 0"), restartPolicy="Never"), namespace=namespace)
    node.wait_phase(namespace, "done", "Succeeded")
    node.kubectl("delete", "pod", "done", "--timeout=10s", namespace=namespace)

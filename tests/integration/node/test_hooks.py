"""Lifecycle hooks of real containers."""

from __future__ import annotations

import time

import pytest

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod, serving
from tests.integration.node.seen import container_status, is_ready, running, status


def gone_after(node: Node, namespace: str, *names: str) -> list[float]:
    """Delete pods, of which the next outlasts the one before; the seconds that each took."""
    begun = time.monotonic()
    node.kubectl("delete", "pod", *names, "--wait=false", namespace=namespace)
    took = []
    for name in names:
        node.wait_removed(namespace, name)
        took.append(time.monotonic() - begun)
    return took


def test_post_start_comes_before_ready(node: Node, namespace: str) -> None:
    hook = {"exec": {"command": ["sh", "-c", "sleep 2; touch /tmp/hooked"]}}
    node.apply(
        pod("hooked", container(lifecycle={"postStart": hook})),
        namespace=namespace,
    )
    ready = container_status(node.wait_running(namespace, "hooked"))
    assert node.exec(ready["containerID"], "ls", "/tmp/hooked")[0] == 0


def test_a_failed_post_start_kills_and_is_reported(node: Node, namespace: str) -> None:
    hook = {"exec": {"command": ["sh", "-c", "echo no luck; exit 7"]}}
    node.apply(pod("unlucky", container(lifecycle={"postStart": hook})), namespace=namespace)
    node.wait_event(namespace, "unlucky", "FailedPostStartHook: PostStartHook failed")
    node.wait_event(namespace, "unlucky", "Killing: FailedPostStartHook")
    waits = node.wait_pod(
        namespace,
        "unlucky",
        lambda p: (
            "no luck" in str(container_status(p).get("state"))
            or container_status(p).get("restartCount", 0) > 0
        ),
        "failed by its hook",
    )
    assert not is_ready(waits)


@pytest.mark.parametrize("kind", ["exec", "sleep"])
def test_pre_stop_is_part_of_the_grace_period(node: Node, namespace: str, kind: str) -> None:
    """The hook holds the stop up for its time, and no longer than the grace period."""
    long = {"exec": {"command": ["sleep", "600"]}, "sleep": {"seconds": 6}}[kind]
    short = {"exec": {"command": ["sleep", "3"]}, "sleep": {"seconds": 3}}[kind]
    for name, handler in (("short", short), ("long", long)):
        node.apply(
            pod(
                name,
                container(lifecycle={"preStop": {kind: handler}}),
                terminationGracePeriodSeconds=6,
            ),
            namespace=namespace,
        )
    node.wait_running(namespace, "short")
    node.wait_running(namespace, "long")
    of_short, of_long = gone_after(node, namespace, "short", "long")
    assert 3 <= of_short < 6
    assert 6 <= of_long < 14


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
        gone_after(node, namespace, "web")
        assert "response:200" in lines.read()


def test_a_failed_pre_stop_is_reported_and_the_stop_goes_on(node: Node, namespace: str) -> None:
    hook = {"httpGet": {"path": "/", "port": 1}}
    node.apply(pod("deaf", container(lifecycle={"preStop": hook})), namespace=namespace)
    node.wait_running(namespace, "deaf")
    (took,) = gone_after(node, namespace, "deaf")
    assert took < 10
    node.wait_event(namespace, "deaf", "FailedPreStopHook: PreStopHook failed")


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

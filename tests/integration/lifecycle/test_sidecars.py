"""Sidecars beside the containers that they serve: who ends when, and what becomes of the pod."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, status, terminated

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


def test_a_sidecar_that_ends_is_started_again_while_the_job_goes_on(
    node: Node, namespace: str
) -> None:
    once = "test -f /data/done || { touch /data/done; exit 5; }; " + FOREVER
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    node.apply(
        pod(
            "job",
            container("main", "while ! test -f /data/end; do sleep 0.1; done", **mounts),
            initContainers=[{**sidecar("side", once), **mounts}],
            restartPolicy="Never",
            volumes=[{"name": "data", "emptyDir": {}}],
        ),
        namespace=namespace,
    )
    again = node.wait_pod(
        namespace,
        "job",
        lambda p: (
            container_status(p, "side").get("restartCount") == 1
            and "running" in container_status(p, "side")["state"]
            and "running" in container_status(p, "main")["state"]
        ),
        "with its sidecar restarted beside the job",
    )
    assert terminated(container_status(again, "side"), "lastState")["exitCode"] == 5
    node.exec(container_status(again, "main")["containerID"], "touch", "/data/end")
    node.wait_phase(namespace, "job", "Succeeded")

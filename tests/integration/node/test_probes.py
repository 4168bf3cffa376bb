"""Probes of real containers: what they gate, what they restart, what people read about them."""

from __future__ import annotations

import json
import re

import pytest

from kubeletpy.cli import explain
from tests.integration.lifecycle.command import command_output
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod, serving
from tests.integration.node.seen import container_status, is_ready

SERVE = serving("fine")


def series(node: Node, namespace: str) -> list[str]:
    """The agent's probe metrics for a namespace."""
    lines = node.http("/metrics/probes")[1].splitlines()
    return [line for line in lines if f'namespace="{namespace}"' in line]


def successes(node: Node, namespace: str) -> list[str]:
    """The counts of probes that succeeded."""
    desired = ("prober_probe_total{", 'result="successful"')
    return [line for line in series(node, namespace) if all(word in line for word in desired)]


def test_readiness_by_http_follows_the_server(node: Node, namespace: str) -> None:
    """The probe names its port; ready in kubectl, not ready without the page, ready again."""
    node.apply(
        pod(
            "web",
            container(
                script=SERVE,
                ports=[{"name": "web", "containerPort": 8080}],
                readinessProbe={
                    "httpGet": {"path": "/ok", "port": "web"},
                    "periodSeconds": 1,
                    "failureThreshold": 1,
                },
            ),
        ),
        namespace=namespace,
    )
    web = node.wait_running(namespace, "web")
    assert re.search(r"web +1/1 +Running", node.kubectl("get", "pod", "web", namespace=namespace))
    container_id = container_status(web)["containerID"]
    node.exec(container_id, "mv", "/tmp/www/ok", "/tmp/www/gone")
    node.wait_pod(namespace, "web", lambda p: not is_ready(p), "not ready")
    assert re.search(r"web +0/1 +Running", node.kubectl("get", "pod", "web", namespace=namespace))
    node.wait_event(
        namespace,
        "web",
        "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 404",
    )
    node.exec(container_id, "mv", "/tmp/www/gone", "/tmp/www/ok")
    after = node.wait_running(namespace, "web")
    assert container_status(after)["restartCount"] == 0
    assert container_status(after)["containerID"] == container_id


def test_an_exec_probe_that_hangs_is_a_failure_in_time(node: Node, namespace: str) -> None:
    node.apply(
        pod(
            "hangs",
            container(
                readinessProbe={
                    "exec": {"command": ["sleep", "60"]},
                    "periodSeconds": 1,
                    "timeoutSeconds": 1,
                }
            ),
        ),
        namespace=namespace,
    )
    # a runtime that answers DeadlineExceeded adds more; CRI-O answers this message
    node.wait_event(namespace, "hangs", "Unhealthy: Readiness probe failed: command timed out")
    found = node.pod(namespace, "hangs")
    assert not is_ready(found), json.dumps(found["status"])


@pytest.mark.needs("waits for children of commands")
def test_a_command_whose_child_hangs_is_a_failure_and_runs_once(node: Node, namespace: str) -> None:
    """containerd kills the shell at the time limit, and waits for the child without one."""
    probe = {
        "exec": {"command": ["sh", "-c", "echo run >> /tmp/runs; sleep 10000; true"]},
        "periodSeconds": 1,
        "timeoutSeconds": 1,
        "failureThreshold": 1000,
    }
    node.apply(pod("stuck", container(livenessProbe=probe)), namespace=namespace)
    # the first run comes within a period, the second one finds the first still there
    node.wait_event(namespace, "stuck", ".*it is not run again until then", timeout=40)
    runs = node.kubectl("exec", "stuck", "--", "cat", "/tmp/runs", namespace=namespace)
    assert runs.split() == ["run"]
    assert "not run yet" not in command_output(explain.main, node, f"{namespace}/stuck")


def test_a_runtime_that_is_paused_is_no_failure_of_the_container(
    node: Node, namespace: str
) -> None:
    probe = {
        "exec": {"command": ["true"]},
        "periodSeconds": 1,
        "timeoutSeconds": 3,  # a busy machine needs a second for it
        "failureThreshold": 1,
    }
    node.apply(pod("works", container(livenessProbe=probe)), namespace=namespace)
    before = container_status(node.wait_running(namespace, "works"))
    node.until(lambda: successes(node, namespace), "a run of the probe", namespace)
    node.containerd.pause()
    try:
        silent = ".*did not answer ContainerStatus within 2s"
        node.wait_event(namespace, "works", silent, timeout=40)
    finally:
        node.containerd.resume()
    counted = successes(node, namespace)
    node.until(lambda: successes(node, namespace) != counted, "another success", namespace)
    after = container_status(node.pod(namespace, "works"))
    assert after["containerID"] == before["containerID"], node.story(namespace, "works")


def test_a_failed_command_that_leaves_a_child_behind_is_a_failure(
    node: Node, namespace: str
) -> None:
    """Its output stays open past the probe's time limit, and the runtime waits."""
    probe = {
        "exec": {"command": ["sh", "-c", "sleep 8 & exit 1"]},
        "periodSeconds": 1,
        "timeoutSeconds": 1,
    }
    # unlike a readiness probe it has no early run, which is not reported
    node.apply(pod("leaves", container(livenessProbe=probe)), namespace=namespace)
    node.wait_event(namespace, "leaves", "Unhealthy: Liveness probe failed", timeout=40)

"""Probes of real containers: what they gate, what they restart, what people read about them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.cli import explain
from kubeletpy.probes.schedule import RESTART_SLACK_S
from tests.integration.lifecycle.command import command_output
from tests.integration.node.conftest import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod, serving
from tests.integration.node.seen import container_status, is_ready, running, terminated

SERVE = serving("fine")
OLDER = "older"
"""Namespace of the pod that is made before all others."""


@pytest.fixture(scope="module", autouse=True)
def older(node: Node) -> Iterator[JSON]:
    """A container that is ready, and gets old while other tests run; its status."""
    node.api.create("namespaces", "", {"metadata": {"name": OLDER}})
    # slow, so that an agent that has lost this state shows for a while that it is not ready
    command = ["sh", "-c", "cat /tmp/ok && sleep 1"]
    probe = {"exec": {"command": command}, "periodSeconds": 1, "timeoutSeconds": 10}
    script = f"touch /tmp/ok; {FOREVER}"
    node.apply(pod("stays", container(script=script, readinessProbe=probe)), namespace=OLDER)
    yield container_status(node.wait_running(OLDER, "stays"))
    remove_pods(node, OLDER)


def series(node: Node, namespace: str) -> list[str]:
    """The agent's probe metrics for a namespace."""
    lines = node.http("/metrics/probes")[1].splitlines()
    return [line for line in lines if f'namespace="{namespace}"' in line]


def successes(node: Node, namespace: str) -> list[str]:
    """The counts of probes that succeeded."""
    desired = ("prober_probe_total{", 'result="successful"')
    return [line for line in series(node, namespace) if all(word in line for word in desired)]


def test_startup_then_liveness_then_restart(node: Node, namespace: str) -> None:
    """Liveness waits for startup; its failure restarts the container, and startup begins anew."""
    probe: JSON = {"periodSeconds": 1, "failureThreshold": 30}
    node.apply(
        pod(
            "life",
            container(
                script=f"sleep 2; touch /tmp/started; {FOREVER}",
                startupProbe={"exec": {"command": ["cat", "/tmp/started"]}, **probe},
                livenessProbe={
                    "exec": {"command": ["sh", "-c", "! test -e /tmp/broken"]},
                    "periodSeconds": 1,
                    "failureThreshold": 1,
                    "terminationGracePeriodSeconds": 1,
                },
            ),
        ),
        namespace=namespace,
    )
    first = node.wait_pod(namespace, "life", lambda p: running(container_status(p)), "running")
    assert container_status(first)["started"] is False
    assert not is_ready(first)
    ready = container_status(node.wait_running(namespace, "life"))
    assert ready["started"] is True
    node.exec(ready["containerID"], "touch", "/tmp/broken")
    node.wait_event(namespace, "life", r"Unhealthy: Liveness probe failed: ")
    node.wait_event(
        namespace, "life", "Killing: Container main failed liveness probe, will be restarted"
    )
    again = container_status(
        node.wait_pod(
            namespace, "life", lambda p: container_status(p).get("restartCount") == 1, "restarted"
        )
    )
    assert terminated(again, "lastState")["exitCode"] in (0, 137, 143)
    assert container_status(node.wait_running(namespace, "life"))["restartCount"] == 1


def test_a_failed_startup_probe_restarts(node: Node, namespace: str) -> None:
    node.apply(
        pod(
            "slow",
            container(
                startupProbe={
                    "tcpSocket": {"port": 1},
                    "periodSeconds": 1,
                    "failureThreshold": 2,
                    "terminationGracePeriodSeconds": 1,
                }
            ),
        ),
        namespace=namespace,
    )
    node.wait_event(namespace, "slow", r"Unhealthy: Startup probe failed: dial tcp .*refused")
    node.wait_event(namespace, "slow", "Killing: Container main failed startup probe")
    node.wait_pod(
        namespace, "slow", lambda p: container_status(p).get("restartCount", 0) >= 1, "restarted"
    )


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


def test_ready_as_soon_as_the_server_is(node: Node, namespace: str) -> None:
    """A period of a minute does not mean a minute until ready."""
    node.apply(
        pod(
            "quick",
            container(
                script=f"sleep 1; {SERVE}",
                readinessProbe={"httpGet": {"path": "/ok", "port": 8080}, "periodSeconds": 60},
            ),
        ),
        namespace=namespace,
    )
    node.wait_running(namespace, "quick", timeout=20)
    assert not [e for e in node.events(namespace, "quick") if e.startswith("Unhealthy")]


def test_a_sidecars_startup_probe_holds_the_others_up(node: Node, namespace: str) -> None:
    side = container(
        "side",
        script=f"sleep 3; touch /tmp/up; {FOREVER}",
        restartPolicy="Always",
        startupProbe={
            "exec": {"command": ["cat", "/tmp/up"]},
            "periodSeconds": 1,
            "failureThreshold": 30,
        },
    )
    node.apply(pod("pair", container("main"), initContainers=[side]), namespace=namespace)
    whole = node.wait_running(namespace, "pair")

    def started_at(name: str) -> float:
        text = running(container_status(whole, name))["startedAt"]
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))

    assert started_at("main") - started_at("side") >= 2


def test_metrics_of_probes_come_and_go(node: Node, namespace: str) -> None:
    node.apply(
        pod(
            "counted",
            container(
                livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
            ),
        ),
        namespace=namespace,
    )
    node.wait_running(namespace, "counted")

    node.until(lambda: successes(node, namespace), "the probe counted", namespace, "counted")
    buckets = "prober_probe_duration_seconds_bucket"
    assert any(buckets in line for line in series(node, namespace))
    node.kubectl("delete", "pod", "counted", "--grace-period=1", namespace=namespace)
    node.wait_removed(namespace, "counted")
    node.until(lambda: not series(node, namespace), "no series of the pod", namespace)


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
        "timeoutSeconds": 1,
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


def test_an_agent_restart_keeps_ready_what_is_ready(node: Node, older: JSON) -> None:
    """The containers stay ready, and a probe that fails afterwards still counts."""
    old = parse_time(running(older)["startedAt"]) + RESTART_SLACK_S + 1
    node.until(lambda: time.time() > old, "a container that is not counted as the new agent's")
    node.kill()
    node.start_agent()

    def probed() -> Any:
        assert is_ready(node.pod(OLDER, "stays"))
        return successes(node, OLDER)

    node.until(probed, "a probe of the new agent", OLDER, "stays")
    assert is_ready(node.pod(OLDER, "stays"))
    node.exec(older["containerID"], "rm", "/tmp/ok")
    after = node.wait_pod(OLDER, "stays", lambda p: not is_ready(p), "not ready")
    assert container_status(after)["restartCount"] == 0

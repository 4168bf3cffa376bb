"""Status of pods besides their phase: counts, last states, gates, generations."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import (
    condition,
    container_status,
    is_ready,
    running,
    status,
    terminated,
)
from tools.env.cri import RawRuntime

MOUNTS = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
VOLUMES = [{"name": "data", "emptyDir": {}}]
ONCE = "test -f /data/done || { touch /data/done; exit 7; }; " + FOREVER


def test_readiness_gates(node: Node, namespace: str) -> None:
    gates = [{"conditionType": "example.com/gate"}]
    node.apply(pod("gated", readinessGates=gates), namespace=namespace)

    def set_gate(what: str) -> None:
        gate = {"type": "example.com/gate", "status": what}
        patch = json.dumps({"status": {"conditions": [gate]}})
        node.kubectl(
            "patch", "pod", "gated", "--subresource=status", "-p", patch, namespace=namespace
        )

    shut = node.wait_pod(
        namespace,
        "gated",
        lambda p: condition(p, "ContainersReady").get("status") == "True",
        "with ready containers",
    )
    assert not is_ready(shut)
    why = condition(shut, "Ready")
    assert why["reason"] == "ReadinessGatesNotReady"
    assert "example.com/gate" in why["message"]
    set_gate("True")
    node.wait_running(namespace, "gated", timeout=5)
    set_gate("False")
    after = node.wait_pod(namespace, "gated", lambda p: not is_ready(p), "not ready", timeout=5)
    assert condition(after, "ContainersReady")["status"] == "True"
    assert condition(after, "example.com/gate")["status"] == "False"


def test_the_last_state_outlives_its_record(node: Node, namespace: str) -> None:
    """The dead container is removed by hand, and then the agent is started anew."""
    node.apply(pod("kept", container("main", ONCE, **MOUNTS), volumes=VOLUMES), namespace=namespace)
    before = container_status(
        node.wait_pod(
            namespace,
            "kept",
            lambda p: is_ready(p) and container_status(p)["restartCount"] == 1,
            "restarted once",
        )
    )
    with RawRuntime(node.containerd.socket) as raw:
        for record in raw.containers():
            if record.labels.get("io.kubernetes.pod.namespace") == namespace and record.state == 2:
                raw.remove_container(record.id)
    for restart in (False, True):
        if restart:
            node.kill()
            node.start_agent()
        node.apply(pod(f"beside-{restart}".lower()), namespace=namespace)
        note = f"example.com/note-{restart}=x".lower()
        node.kubectl("annotate", "pod", "kept", note, namespace=namespace)
        node.wait_running(namespace, f"beside-{restart}".lower())
        after = container_status(node.pod(namespace, "kept"))
        assert after["containerID"] == before["containerID"]
        assert after["restartCount"] == 1
        assert terminated(after, "lastState")["exitCode"] == 7


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

    node.until(
        lambda: counts() == {1} and is_ready(node.pod(namespace, "box")),
        "each restarted once",
        namespace,
        "box",
    )
    after = node.pod(namespace, "box")
    for name in ("side", "main"):
        assert running(container_status(after, name))
        assert terminated(container_status(after, name), "lastState")["exitCode"] == 0
    node.kill()
    node.start_agent()
    node.apply(pod("later"), namespace=namespace)
    node.wait_running(namespace, "later")
    assert counts() == {1}


def test_generations(node: Node, namespace: str) -> None:
    """The status and each condition of the agent's own show the generation it has acted upon."""
    node.apply(pod("gen"), namespace=namespace)
    first = node.wait_running(namespace, "gen")
    assert status(first)["observedGeneration"] == first["metadata"]["generation"] == 1
    patch = '[{"op":"add","path":"/spec/activeDeadlineSeconds","value":3600}]'
    node.kubectl("patch", "pod", "gen", "--type=json", "-p", patch, namespace=namespace)
    second = node.wait_pod(
        namespace, "gen", lambda p: status(p).get("observedGeneration") == 2, "seen", timeout=5
    )
    assert second["metadata"]["generation"] == 2
    for kind in ("Ready", "ContainersReady", "PodScheduled", "Initialized"):
        assert condition(second, kind)["observedGeneration"] in (1, 2), kind

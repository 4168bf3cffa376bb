"""Nonsense from every side: one clear word about it, and everything else goes on."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.registry.registry import Registry
from tests.integration.node import agent
from tests.integration.node.machine import ROOT, Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status


def stored(name: str, namespace: str, node: str) -> JSON:
    """A pod as a valid one is stored."""
    made = pod(name, {**container(), "imagePullPolicy": "IfNotPresent"})
    made["metadata"].update({"namespace": namespace, "uid": str(uuid.uuid4())})
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    made["spec"].update({"nodeName": node, "restartPolicy": "Always", "dnsPolicy": "Default"})
    return {**made, "status": {"phase": "Pending"}}


def broken(path: str, value: Any) -> Any:
    """A change: the field at a dotted path is set to a value."""

    def change(made: JSON) -> JSON:
        made = copy.deepcopy(made)
        target: Any = made
        *parents, last = path.split(".")
        for part in parents:
            target = target[int(part)] if part.isdigit() else target[part]
        target[int(last) if last.isdigit() else last] = value
        return made

    return change


NONSENSE = {
    "spec-is-a-list": broken("spec", []),
    "spec-is-null": broken("spec", None),
    "no-uid": broken("metadata.uid", None),
    "uid-goes-up": broken("metadata.uid", "../../../../etc"),
    "uid-is-a-number": broken("metadata.uid", 7),
    "name-goes-up": broken("metadata.name", "../../escape"),
    "labels-are-numbers": broken("metadata.labels", {"a": 1}),
    "annotations-are-a-text": broken("metadata.annotations", "x"),
    "containers-are-a-text": broken("spec.containers", "main"),
    "container-is-null": broken("spec.containers", [None]),
    "container-without-name": broken("spec.containers.0.name", None),
    "container-name-goes-up": broken("spec.containers.0.name", "../../../x"),
    "image-is-an-object": broken("spec.containers.0.image", {}),
    "command-is-an-object": broken("spec.containers.0.command", {"a": {}}),
    "env-without-name": broken("spec.containers.0.env", [{}]),
    "env-is-a-number": broken("spec.containers.0.env", 3),
    "memory-is-nonsense": broken("spec.containers.0.resources", {"limits": {"memory": "lots"}}),
    "memory-below-zero": broken("spec.containers.0.resources", {"limits": {"memory": "-1"}}),
    "grace-is-a-text": broken("spec.terminationGracePeriodSeconds", "soon"),
    "user-is-a-text": broken("spec.securityContext", {"runAsUser": "root"}),
    "status-is-a-list": broken("status", []),
    "statuses-are-nonsense": broken("status.containerStatuses", [{"state": "x"}, None, 7]),
    "deleted-on-no-day": broken("metadata.deletionTimestamp", "yesterday"),
    "policy-is-unknown": broken("spec.restartPolicy", "Sometimes"),
    "sysctl-is-unknown": broken("spec.securityContext", {"sysctls": [{"name": 1}]}),
}


@pytest.fixture
def nonsense(node2: Node, namespace: str) -> Iterator[Callable[[], None]]:
    """Call it to write all of NONSENSE into the API's store, past all validation."""

    def write(registry: Registry) -> None:
        for name, change in NONSENSE.items():
            thing = change(stored(name, namespace, node2.name))
            registry.store.put("pods", namespace, name, thing)

    def remove(registry: Registry) -> None:
        for name in NONSENSE:
            if registry.store.get("pods", namespace, name) is not None:
                registry.store.remove("pods", namespace, name)

    yield lambda: node2.api.call(write)
    node2.api.call(remove)


def test_nonsense_in_the_api(node2: Node, namespace: str, nonsense: Callable[[], None]) -> None:
    """Every healthy pod before and after it runs, and the agent still starts with all of it."""
    # bound by their makers: the API's own scheduler counts on valid objects
    bound = {"nodeName": node2.name}
    node2.apply(pod("before", **bound), namespace=namespace)
    before = container_status(node2.wait_running(namespace, "before"))
    lines = len(node2.log_lines())
    nonsense()
    node2.apply(pod("after", **bound), namespace=namespace)
    node2.wait_running(namespace, "after")
    assert node2.http("/healthz")[0] == 200
    node2.kill()
    node2.start_agent()
    node2.apply(pod("later", **bound), namespace=namespace)
    node2.wait_running(namespace, "later")
    after = container_status(node2.pod(namespace, "before"))
    assert after["containerID"] == before["containerID"]
    stated = node2.log_lines()[lines:]
    assert not [line for line in stated if "Traceback" in line], "\n".join(stated[-60:])
    for name in ("before", "after", "later"):
        node2.kubectl("delete", "pod", name, namespace=namespace)
    assert not (node2.directory.parent / "escape").exists()


def test_a_container_that_floods_its_log(node2: Node, namespace: str) -> None:
    flood = "yes 0123456789012345678901234567890123456789 | head -c 20000000; exit 1"
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    node2.apply(
        pod("floods", container("main", flood, **policy), restartPolicy="Never"),
        namespace=namespace,
    )
    found = node2.wait_phase(namespace, "floods", "Failed")
    message = container_status(found)["state"]["terminated"]["message"]
    assert 0 < len(message) <= 2048


def test_a_healthy_node_logs_almost_nothing(node2: Node, namespace: str) -> None:
    """Pods come, run, end and go; the log has no line about any of it."""
    lines = len(node2.log_lines())
    node2.apply(
        pod("runs"),
        pod("ends", container("main", "true"), restartPolicy="Never"),
        namespace=namespace,
    )
    node2.wait_running(namespace, "runs")
    node2.wait_phase(namespace, "ends", "Succeeded")
    node2.kubectl("delete", "pods", "--all", namespace=namespace)
    assert node2.log_lines()[lines:] == []
    node2.terminate()
    lines = len(node2.log_lines())
    node2.start_agent()
    node2.apply(pod("again"), namespace=namespace)
    node2.wait_running(namespace, "again")
    assert len(node2.log_lines()) - lines <= 5, node2.log_lines()[lines:]


def test_the_health_port_is_taken(node2: Node, work_dir: Path) -> None:
    """Another kubelet already runs."""
    file = work_dir / "config.json"
    file.write_text(json.dumps(node2.config()))
    ended = subprocess.run(
        [
            *agent.COMMAND,
            "run",
            f"--config={file}",
            f"--kubeconfig={node2.api.endpoint.node_kubeconfig}",
            f"--root-dir={work_dir / 'root'}",
            f"--device-plugins-dir={work_dir / 'device-plugins'}",
            "--keep-kernel-settings",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert "can't listen on " in ended.stderr
    assert "another port: kubeletpy run … --" in ended.stderr
    assert "Traceback" not in ended.stderr

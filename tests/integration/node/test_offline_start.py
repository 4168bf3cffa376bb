"""A node starts alone: no container, no API server, only the agent's record of the objects."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.generated import api_pb2 as cri
from tests.integration.lifecycle.command import explained
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, status
from tools.env.cri import RawRuntime

TOKEN = "/token/token"
FLAG = "--offline-start"
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def node(node2: Node) -> Node:
    """One runtime: what starts alone is decided without it."""
    return node2


@pytest.fixture(autouse=True)
def online_again(node: Node, namespace: str) -> Iterator[None]:
    """The agent runs as usual for the next test, and for the removal of the namespace."""
    yield
    if node.api.stopped:
        node.api.start()
    if node.agent.pid is not None:
        node.terminate()
    node.start_agent()
    node.wait_ready()


def rich_pod(name: str, **more: Any) -> JSON:
    """A pod with secret, configMap, token, init container, sidecar, probe and hook."""
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in ("words", "hidden", "token")]
    probe = {"exec": {"command": ["test", "-s", TOKEN]}, "periodSeconds": 1}
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "cat /hidden/key > /tmp/hook"]}}}
    main = container(
        script=FOREVER, volumeMounts=mounts, readinessProbe=probe, lifecycle=hook,
        env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}}],
    )  # fmt: skip
    inits = [
        container("init", "test -s /hidden/key", volumeMounts=mounts),
        container("sidecar", restartPolicy="Always"),
    ]
    volumes = [
        {"name": "words", "configMap": {"name": "words"}},
        {"name": "hidden", "secret": {"secretName": "hidden"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
    ]
    return pod(name, main, initContainers=inits, volumes=volumes, **more)


def prepare(node: Node, namespace: str, mode: str, *pods: JSON) -> None:
    """Run pods with an agent that keeps a record, and let that be written."""
    node.terminate()
    node.start_agent(f"{FLAG}={mode}")
    node.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
         "data": {"a": "b"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hidden"},
         "stringData": {"key": "hush-hush"}},
        *pods,
        namespace=namespace,
    )  # fmt: skip
    for each in pods:
        node.wait_running(namespace, each["metadata"]["name"])


def lose_power(node: Node, namespace: str) -> None:
    """The agent ends without a word, all sandboxes with their containers, then the API."""
    record = node.root_dir / "offline_state"
    before = time.time_ns()
    node.kubectl("label", "pods", "--all", "recorded=soon", namespace=namespace)
    node.until(
        lambda: record.exists() and record.stat().st_mtime_ns > before,
        "the agent has recorded its objects",
    )
    node.kill()
    node.api.stop()
    with RawRuntime(node.containerd.socket) as raw:
        for sandbox in node.sandboxes(namespace):
            raw.remove_sandbox(sandbox.id)


def runs(node: Node, namespace: str, name: str) -> dict[str, str]:
    """Id of each running container of a pod, by name."""
    found = node.containers(namespace, name)
    return {k: each.id for k, each in found.items() if each.state == cri.CONTAINER_RUNNING}


def both_run(node: Node, namespace: str, name: str) -> bool:
    """Whether container and sidecar run."""
    return set(runs(node, namespace, name)) == {"main", "sidecar"}


def test_pods_run_without_the_api_and_are_reported_later(node: Node, namespace: str) -> None:
    prepare(node, namespace, "Always", rich_pod("one"), rich_pod("two"))
    before = node.pod(namespace, "one")["metadata"]["uid"]
    lose_power(node, namespace)
    node.start_agent(f"{FLAG}=Always")
    for name in ("one", "two"):
        node.until(partial(both_run, node, namespace, name), f"{name} runs without an API")
    node.until(  # by then its hook has run, too
        lambda: explained(node, namespace, "one")["ready"], "the probe has succeeded without an API"
    )
    main = runs(node, namespace, "one")["main"]
    command = f"cat /words/a /hidden/key /tmp/hook; echo $KEY; wc -c < {TOKEN}"
    code, text = node.exec(main, "sh", "-c", command)
    assert (code, text.count("hush-hush")) == (0, 3)
    decisions = str(explained(node, namespace, "one")["decisions"])
    assert "starts without the API server" in decisions and "--offline-start=Always" in decisions
    assert "hush-hush" not in decisions + "\n".join(node.log_lines())
    assert b"hush-hush" not in (node.root_dir / "offline_state").read_bytes()
    node.api.start()
    found = node.wait_pod(
        namespace, "one", lambda pod: main in str(container_status(pod).get("containerID")),
        "the status of the time alone",
    )  # fmt: skip
    assert found["metadata"]["uid"] == before
    assert status(found)["phase"] == "Running"
    assert runs(node, namespace, "one")["main"] == main  # contact changes nothing


def test_a_pod_that_was_deleted_meanwhile_is_ended_at_contact(node: Node, namespace: str) -> None:
    prepare(node, namespace, "Always", rich_pod("stays"), rich_pod("goes"))
    lose_power(node, namespace)
    node.start_agent(f"{FLAG}=Always")
    node.until(lambda: bool(runs(node, namespace, "goes").get("main")), "it runs")
    node.api.start()
    node.api.delete("pods", namespace, "goes", 0)
    began = time.monotonic()
    node.until(lambda: not runs(node, namespace, "goes"), "it is ended")
    print(f"ended {time.monotonic() - began:.1f} s after the API is back")
    node.wait_running(namespace, "stays")
    assert node.api.find("pods", namespace, "goes") is None


def test_a_pod_that_may_have_been_replaced_waits(node: Node, namespace: str) -> None:
    """The limit of one pod is over, that of the other one is not."""
    unreachable = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
    limited = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in unreachable
    ]
    prepare(
        node, namespace, "UntilReplaced", rich_pod("short", tolerations=limited), rich_pod("long")
    )
    node.until((node.root_dir / "offline_contact").exists, "a contact is recorded")
    lose_power(node, namespace)
    time.sleep(2)
    node.start_agent(f"{FLAG}=UntilReplaced")
    node.until(lambda: bool(runs(node, namespace, "long").get("main")), "it runs")
    assert not runs(node, namespace, "short")
    text = str(explained(node, namespace, "short")["waits"])
    assert "the control plane may have replaced it since" in text
    assert "It starts once the API server shows it" in text
    node.api.start()
    node.until(lambda: bool(runs(node, namespace, "short").get("main")), "it runs after contact")

"""Secrets on every way that a pod can fail: none is in a log, an event, an error or a metric."""

from __future__ import annotations

import base64
import json

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import explained
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, waiting
from tests.integration.volumes.test_kinds import create, mount
from tools.env.containerd import Containerd

HUSH = "hush-9f3c77d1e2"
UP = f"../{HUSH}"
PASSWORD = f"{HUSH}-password"
ENCODED = base64.b64encode(HUSH.encode()).decode()


def variable(name: str, key: str = "k") -> JSON:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}}


def failing() -> dict[str, tuple[JSON, str]]:
    """Pod name -> the pod, and what its container waits with."""
    config = "CreateContainerConfigError"
    env = [variable("S"), variable("UP", "up")]
    volume = {"name": "s", "secret": {"secretName": "s"}}
    scratch = {"name": "e", "emptyDir": {}}

    def one(name: str, reason: str, more: JSON, **spec: object) -> tuple[JSON, str]:
        return pod(name, container("main", FOREVER, **{"env": env, **more}), **spec), reason

    return {
        "no-command": one("no-command", "RunContainerError", {"command": ["$(S)"]}),
        "no-directory": one(
            "no-directory", "RunContainerError", {"workingDir": "/proc/x", "args": ["$(S)"]}
        ),
        "no-key": one("no-key", config, {"env": [*env, variable("N", "nope")]}),
        "path-up": one(
            "path-up",
            config,
            {"volumeMounts": [mount("e", "/e", subPathExpr="$(UP)")]},
            volumes=[scratch],
        ),
        "path-on-file": one(
            "path-on-file",
            config,
            {"volumeMounts": [mount("s", "/s", subPathExpr="k/$(S)")]},
            volumes=[volume],
        ),
        "no-item": one(
            "no-item",
            "ContainerCreating",
            {"volumeMounts": [mount("s", "/s")]},
            volumes=[
                {"name": "s", "secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}}
            ],
        ),
        "bad-mount": one(
            "bad-mount",
            "RunContainerError",
            {"volumeMounts": [mount("s", "/proc/self")], "args": ["$(S)"]},
            volumes=[volume],
        ),
        "no-image": one(
            "no-image",
            "ErrImagePull",
            {"image": "127.0.0.1:9/none:1"},
            imagePullSecrets=[{"name": "pull"}],
        ),
        "hook": one(
            "hook",
            "PostStartHookError",
            {"lifecycle": {"postStart": {"exec": {"command": ["/nope", "$(S)"]}}}},
        ),
        "runs": one(
            "runs",
            "",
            {"volumeMounts": [mount("s", "/s"), mount("t", "/t")]},
            volumes=[volume, token_volume()],
        ),
    }


def token_volume() -> JSON:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    return {"name": "t", "projected": {"sources": [source]}}


@pytest.fixture(scope="module")
def loud_node(make_node: MakeNode, session_containerd2: Containerd) -> Node:
    """A node that logs all it can."""
    node = make_node(session_containerd2, config={"logging": {"verbosity": 10}})
    node.start()
    return node


def test_nothing_tells_a_secret(loud_node: Node) -> None:
    node, namespace = loud_node, "secrecy"
    node.api.create("namespaces", "", {"metadata": {"name": namespace}})
    up = base64.b64encode(UP.encode()).decode()
    create(node, "secrets", namespace, "s", data={"k": ENCODED, "up": up})
    auth = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    docker = base64.b64encode(json.dumps({"auths": {"127.0.0.1:9": {"auth": auth}}}).encode())
    pull = {
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": docker.decode()},
    }
    create(node, "secrets", namespace, "pull", **pull)
    pods = failing()
    node.apply(*(each for each, _ in pods.values()), namespace=namespace)
    for name, (_, reason) in pods.items():
        wait_for(node, namespace, name, reason)
    node.wait_event(namespace, "no-item", "FailedMount: .*non-existent secret key: x")
    uid = node.pod(namespace, "runs")["metadata"]["uid"]
    held = node.root_dir / "pods" / uid / "volumes/kubernetes.io~projected/t/token"
    token = held.read_text()
    notified = outputs(node, namespace)
    remove_pods(node, namespace)
    notified["log"] = node.agent.log.read_text()
    assert "no-command" in notified["log"], "the node logs what it does, or this shows nothing"
    assert "no-command" in notified["events"]
    assert "no-command" in notified["explain"]
    for place, text in notified.items():
        for secret in (HUSH, ENCODED, auth, docker.decode(), token):
            lines = [line for line in text.splitlines() if secret in line]
            assert not lines, f"{place}: {lines[0]}"


def wait_for(node: Node, namespace: str, name: str, reason: str) -> None:
    """Wait until a pod has failed as it is to, or runs."""
    if not reason:
        node.wait_running(namespace, name)
        return
    reasons = {reason, "CrashLoopBackOff", "ImagePullBackOff"}
    node.wait_pod(
        namespace,
        name,
        lambda found: waiting(container_status(found)).get("reason") in reasons,
        f"waiting with {reason}",
    )


def outputs(node: Node, namespace: str) -> dict[str, str]:
    """Everything that the agent reports to anybody."""
    statuses = [found.get("status") for found in node.api.all("pods", namespace)]
    return {
        "events": json.dumps(node.api.all("events", namespace), indent=0),
        "statuses": json.dumps(statuses, indent=0),
        "metrics": node.http("/metrics")[1],
        "probe metrics": node.http("/metrics/probes")[1],
        "explain": "\n".join(json.dumps(explained(node, namespace, name)) for name in failing()),
    }

"""Pods that do not start: their waiting reasons, messages and events."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.fixtures import remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import condition, container_status, status, waiting
from tools.env.images import busybox_image
from tools.env.registry import Registry

NOWHERE = "127.0.0.1:1/nobody/nothing:1"

CASES: dict[str, tuple[JSON, str, str, str]] = {
    # image, container and command fields; reason; its message; an event
    "pull-fails": (
        {"image": NOWHERE},
        "ErrImagePull|ImagePullBackOff",
        r"(?s).*nobody/nothing:1.*(refused|failed).*",
        rf'Failed: Failed to pull image "{NOWHERE}": .*',
    ),
    "never-there": (
        {"image": "kubeletpy.local/absent:1", "imagePullPolicy": "Never"},
        "ErrImageNeverPull",
        'Container image "kubeletpy.local/absent:1" is not present with pull policy of Never',
        'ErrImageNeverPull: Container image "kubeletpy.local/absent:1" is not present with pull',
    ),
    "bad-name": (
        {"image": "Not:An:Image"},
        "InvalidImageName",
        'Failed to apply default image tag "Not:An:Image": .*',
        'InspectFailed: Failed to apply default image tag "Not:An:Image": .*',
    ),
    "root-forbidden": (
        {"securityContext": {"runAsNonRoot": True}},
        "CreateContainerConfigError",
        ".*container has runAsNonRoot and image will run as root.*",
        "Failed: Error: .*runAsNonRoot.*",
    ),
    "no-configmap": (
        {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "k"}}}]},
        "CreateContainerConfigError",
        ".*",
        "Failed: Error: .*",
    ),
    "no-program": (
        {"command": ["/does/not/exist"]},
        "RunContainerError|CrashLoopBackOff",
        r"(?s).*",
        r"(?s)Failed: Error: .*/does/not/exist.*no such file.*",
    ),
    "no-directory": (
        {"workingDir": "/etc/passwd"},
        "CreateContainerError|RunContainerError|CrashLoopBackOff",
        r"(?s).*",
        r"(?s)Failed: Error: .*passwd.*",
    ),
}


@pytest.fixture(scope="module")
def broken(node2: Node) -> Iterator[str]:
    """A namespace in which every case is a pod; they fail side by side."""
    node2.api.create("namespaces", "", {"metadata": {"name": "broken"}})
    pods = [pod(name, {**container(), **fields}) for name, (fields, *_) in CASES.items()]
    node2.apply(*pods, pod("healthy"), namespace="broken")
    yield "broken"
    remove_pods(node2, "broken")


@pytest.mark.parametrize("name", list(CASES))
def test_reason_message_and_event(node2: Node, broken: str, name: str) -> None:
    _, reason, message, event = CASES[name]

    def has_reason(found: JSON) -> bool:
        return bool(re.fullmatch(reason, waiting(container_status(found)).get("reason", "")))

    found = node2.wait_pod(broken, name, has_reason, f"waiting with {reason}")
    assert re.fullmatch(message, waiting(container_status(found)).get("message", ""))
    node2.wait_event(broken, name, event)
    assert status(found)["phase"] in {"Pending", "Running"}
    assert condition(found, "Ready")["status"] == "False"
    assert condition(found, "ContainersReady")["reason"] == "ContainersNotReady"
    row = node2.kubectl("get", "pod", name, "--no-headers", namespace=broken).split()
    assert row[1] == "0/1"
    assert re.fullmatch(f"{reason}|Error|StartError|RunContainerError", row[2])


def test_a_healthy_pod_beside_them_runs(node2: Node, broken: str) -> None:
    node2.wait_running(broken, "healthy")


def test_pulls_back_off(node2: Node, broken: str) -> None:
    entry = node2.wait_waiting(broken, "pull-fails", "ImagePullBackOff")
    assert waiting(entry)["message"].startswith(
        f'Back-off pulling image "{NOWHERE}": ErrImagePull: '
    )
    node2.wait_event(broken, "pull-fails", f'BackOff: Back-off pulling image "{NOWHERE}"')
    row = node2.kubectl("get", "pod", "pull-fails", "--no-headers", namespace=broken).split()
    assert row[2] in {"ImagePullBackOff", "ErrImagePull"}


def test_a_corrected_image_starts_at_once(node2: Node, namespace: str) -> None:
    """No need to wait for the end of a back-off when the image is another one."""
    node2.apply(pod("typo", {**container(), "image": NOWHERE}), namespace=namespace)
    node2.wait_waiting(namespace, "typo", "ImagePullBackOff")
    patch = json.dumps({"spec": {"containers": [{"name": "main", "image": container()["image"]}]}})
    node2.kubectl("patch", "pod", "typo", "-p", patch, namespace=namespace)
    node2.wait_running(namespace, "typo", timeout=8)


def secret(name: str, auths: Any, kind: str = "kubernetes.io/dockerconfigjson") -> JSON:
    """A pull secret."""
    key = ".dockerconfigjson" if kind.endswith("json") else ".dockercfg"
    data = base64.b64encode(json.dumps(auths).encode()).decode()
    about = {"metadata": {"name": name}, "type": kind, "data": {key: data}}
    return {"apiVersion": "v1", "kind": "Secret", **about}


def test_pull_secrets(node2: Node, namespace: str, registry: Registry) -> None:
    node2.containerd.trust(registry.server)
    images = [
        registry.push(busybox_image(extra={"n": str(number).encode()}), f"team/app{number}:1")
        for number in range(5)
    ]
    right = registry.pull_secret()
    wrong = {"auths": {registry.server: {"username": registry.user, "password": "hunter2-wrong"}}}
    node2.apply(
        secret("right", right),
        secret("old-format", right["auths"], "kubernetes.io/dockercfg"),
        secret("wrong", wrong),
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "puller"},
            "imagePullSecrets": [{"name": "right"}],
        },
        namespace=namespace,
    )

    def puller(name: str, image: str, **spec: Any) -> JSON:
        return pod(name, {**container(), "image": image}, **spec)

    node2.apply(
        puller("with-secret", images[0], imagePullSecrets=[{"name": "right"}]),
        puller("old-format", images[1], imagePullSecrets=[{"name": "old-format"}]),
        puller("account", images[2], serviceAccountName="puller"),
        puller("without", images[3]),
        puller("wrong", images[3], imagePullSecrets=[{"name": "wrong"}]),
        puller("missing", images[4], imagePullSecrets=[{"name": "absent"}]),
        namespace=namespace,
    )
    for name in ("with-secret", "old-format", "account"):
        found = node2.wait_running(namespace, name)
        entry = container_status(found)
        assert entry["image"].startswith(f"{registry.server}/team/app")
        assert re.search(r"/team/app\d@sha256:[0-9a-f]{64}$", entry["imageID"])
        node2.wait_event(namespace, name, 'Pulling: Pulling image "')
        node2.wait_event(
            namespace,
            name,
            r'Pulled: Successfully pulled image "\S+" in \S+ \(\S+ including waiting\)\. '
            r"Image size: \d+ bytes\.",
        )
    for name in ("without", "wrong", "missing"):
        node2.wait_waiting(namespace, name, "ImagePullBackOff")
        node2.wait_event(namespace, name, 'Failed: Failed to pull image "')
    node2.wait_event(
        namespace,
        "missing",
        r"FailedToRetrieveImagePullSecret: Unable to retrieve some image pull secrets \(absent\); "
        "attempting to pull the image may not succeed",
    )
    notified = "\n".join([*node2.events(namespace), *node2.log_lines(), node2.http("/metrics")[1]])
    assert registry.password not in notified
    assert "hunter2-wrong" not in notified
    assert (
        base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode() not in notified
    )


def test_an_unknown_runtime_class(node2: Node, namespace: str) -> None:
    """The runtime has no such handler, and the node reports that; a class with a handler works."""
    handler = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "strange"},
        "handler": "no-such-handler",
    }
    node2.apply(handler, pod("strange", runtimeClassName="strange"), namespace=namespace)
    node2.wait_event(
        namespace, "strange", r"(?s)FailedCreatePodSandBox: .*no-such-handler.*", timeout=20
    )
    assert waiting(container_status(node2.pod(namespace, "strange")))["reason"] == (
        "ContainerCreating"
    )
    known = {**handler, "metadata": {"name": "usual"}, "handler": "runc"}
    node2.apply(known, pod("usual", runtimeClassName="usual"), namespace=namespace)
    node2.wait_running(namespace, "usual")
    node2.kubectl("delete", "runtimeclass", "strange", "usual")

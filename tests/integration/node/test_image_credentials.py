"""Pods' access to images: verification policies, credential providers, and a kill -9 in between.

A real registry with a password, real containerd, `kubeletpy run`, kubectl.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.images.records.model import file_name
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.test_start_errors import secret
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX, busybox_image, write_archive
from tools.env.registry import Registry
from tools.env.waiting import wait_until

PRESENT = r'Pulled: Container image "\S+" already present on machine and can be accessed by the pod'
EXEC_V1 = "credentialprovider.kubelet.k8s.io/v1"


@pytest.fixture(scope="module")
def node2(make_node: MakeNode, session_containerd2: Containerd, registry: Registry) -> Node:
    """A node whose policy is AlwaysVerify at first."""
    session_containerd2.trust(registry.server)
    node = make_node(session_containerd2)
    node.api.start()
    start(node, "AlwaysVerify")
    return node


@pytest.fixture
def namespace(node2: Node, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.originalname.replace("_", "-")[5:40].strip("-")
    node2.api.create("namespaces", "", {"metadata": {"name": name}})
    yield name
    remove_pods(node2, name)


def start(node: Node, policy: str, *flags: str) -> None:
    """Kill -9 the agent, if there is one, and start another."""
    node.kill()
    node._config["imagePullCredentialsVerificationPolicy"] = policy
    node.start_agent(*flags)
    # the node is still shown as Ready from before
    wait_until(lambda: node.http("/healthz")[0] == 200, "a healthy agent", give_up=node.agent.died)
    node.wait_ready()


def image(registry: Registry, name: str) -> str:
    """An image of its own content, pushed and not pulled yet."""
    return registry.push(busybox_image(extra={name: b"here"}), f"team/{name}:1")


def puller(
    name: str, desired: str, *secrets: str, policy: str = "IfNotPresent", **spec: Any
) -> JSON:
    """A pod with an image and pull secrets."""
    if secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in secrets]
    return pod(name, {**container(), "image": desired, "imagePullPolicy": policy}, **spec)


def record(node: Node, namespace: str, name: str) -> JSON:
    """The pull record of a running pod's image."""
    entry = node.containers(namespace, name)["main"]
    path = node.root_dir / "image_manager" / "pulled" / file_name(entry.image_id or entry.image_ref)
    document: JSON = json.loads(path.read_text())
    return document


def files(node: Node, folder: str) -> list[str]:
    return sorted(path.name for path in (node.root_dir / "image_manager" / folder).iterdir())


def test_always_verify(node2: Node, namespace: str, registry: Registry) -> None:
    desired = image(registry, "verified")
    wrong = {"auths": {registry.server: {"username": registry.user, "password": "hunter2-no"}}}
    node2.apply(
        secret("right", registry.pull_secret()),
        secret("copy", registry.pull_secret()),
        secret("wrong", wrong),
        namespace=namespace,
    )
    node2.apply(puller("first", desired, "right"), namespace=namespace)
    node2.wait_running(namespace, "first")
    (mapping,) = record(node2, namespace, "first")["credentialMapping"].values()
    (known,) = mapping["kubernetesSecrets"]
    assert (known["namespace"], known["name"]) == (namespace, "right")
    assert files(node2, "pulling") == []
    node2.apply(
        puller("same", desired, "right"),
        puller("copy", desired, "copy"),
        puller("without", desired),
        puller("wrong", desired, "wrong"),
        puller("never", desired, policy="Never"),
        puller("preloaded", BUSYBOX, policy="Never"),
        namespace=namespace,
    )
    for name in ("same", "copy"):
        node2.wait_running(namespace, name)
        node2.wait_event(namespace, name, PRESENT)
    for name in ("without", "wrong"):
        node2.wait_waiting(namespace, name, "ImagePullBackOff")
        node2.wait_event(namespace, name, "Failed: Failed to pull image ")
    for name, named in (("never", desired), ("preloaded", BUSYBOX)):
        node2.wait_waiting(namespace, name, "ErrImageNeverPull")
        node2.wait_event(
            namespace,
            name,
            f'ErrImageNeverPull: Container image "{named}" is on the node, but no pull has '
            "verified this pod's credentials for it",
        )
    (mapping,) = record(node2, namespace, "first")["credentialMapping"].values()
    assert len(mapping["kubernetesSecrets"]) == 2, "the copy is known by now"
    checks = "kubelet_imagemanager_image_mustpull_checks_total"
    assert node2.metric(checks, result="credentialRecordFound") >= 2
    assert node2.metric(checks, result="mustAuthenticate") >= 3
    assert node2.metric("kubelet_imagemanager_ondisk_pulledrecords") >= 1
    notified = "\n".join([*node2.events(namespace), *node2.log_lines(), node2.http("/metrics")[1]])
    folder = node2.root_dir / "image_manager"
    notified += "".join(path.read_text() for path in folder.rglob("sha256-*"))
    for text in (registry.password, "hunter2-no"):
        assert text not in notified


def test_killed_between_pull_and_record(node2: Node, namespace: str, work_dir: Path) -> None:
    start(node2, "NeverVerifyPreloadedImages")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        desired = f"127.0.0.1:{silent.getsockname()[1]}/team/killed:1"
        node2.containerd.trust(desired.partition("/")[0])
        node2.apply(puller("first", desired), namespace=namespace)
        wait_until(lambda: file_name(desired) in files(node2, "pulling"), "an intent")
        node2.kill()
    archive = write_archive(work_dir / "killed.tar", busybox_image(desired, {"killed": b"1"}))
    node2.containerd.import_images(archive)
    with RawRuntime(node2.containerd.socket) as raw:
        wait_until(lambda: raw.has_image(desired), "the image")
        image_id = raw.image_id(desired)
    start(node2, "NeverVerifyPreloadedImages")
    path = node2.root_dir / "image_manager" / "pulled" / file_name(image_id)
    assert "credentialMapping" not in json.loads(path.read_text())
    wait_until(lambda: file_name(desired) not in files(node2, "pulling"), "no intent")
    node2.apply(puller("second", desired, policy="Never"), namespace=namespace)
    node2.wait_waiting(namespace, "second", "ErrImageNeverPull")
    node2.wait_waiting(namespace, "first", "ImagePullBackOff")
    start(node2, "NeverVerify")
    node2.wait_running(namespace, "second")


def provider_flags(folder: Path, name: str, answer: JSON, **settings: Any) -> list[str]:
    """A shell script that answers, its configuration, and the flags that name both."""
    programs, configs = folder / "bin", folder / "providers"
    for directory in (programs, configs):
        directory.mkdir(exist_ok=True)
    (folder / f"{name}.answer").write_text(json.dumps(answer))
    (programs / name).write_text('#!/bin/sh\ncat >> "$1"\ncat "$ANSWER"\n')
    (programs / name).chmod(0o755)
    entry = {
        "name": name,
        "defaultCacheDuration": "10m",
        "apiVersion": EXEC_V1,
        "args": [str(folder / f"{name}.requests")],
        "env": [{"name": "ANSWER", "value": str(folder / f"{name}.answer")}],
        **settings,
    }
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [entry],
    }
    (configs / f"{name}.yaml").write_text(json.dumps(config))
    return [
        f"--image-credential-provider-config={configs}",
        f"--image-credential-provider-bin-dir={programs}",
    ]


def answer_for(registry: Registry, password: str = "") -> JSON:
    login = {"username": registry.user, "password": password or registry.password}
    return {
        "apiVersion": EXEC_V1,
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "auth": {registry.server: login},
    }


def requests(folder: Path, name: str) -> list[JSON]:
    """The requests that a provider got."""
    return [json.loads(line) for line in (folder / f"{name}.requests").read_text().splitlines()]


def test_a_provider_gives_the_password(
    node2: Node, namespace: str, registry: Registry, work_dir: Path
) -> None:
    flags = provider_flags(
        work_dir, "login", answer_for(registry), matchImages=[f"*.0.0.1:{registry.port}"]
    )
    start(node2, "AlwaysVerify", *flags)
    desired = [image(registry, f"provided{number}") for number in range(3)]
    for number, name in enumerate(desired):
        node2.apply(puller(f"pod{number}", name), namespace=namespace)
        node2.wait_running(namespace, f"pod{number}")
    (requested,) = requests(work_dir, "login")
    assert requested == {
        "apiVersion": EXEC_V1,
        "kind": "CredentialProviderRequest",
        "image": desired[0].removesuffix(":1"),
    }
    found = record(node2, namespace, "pod0")["credentialMapping"]
    assert found == {desired[0].removesuffix(":1"): {"nodePodsAccessible": True}}
    node2.apply(puller("again", desired[0], policy="Never"), namespace=namespace)
    node2.wait_running(namespace, "again")
    assert node2.metric("kubelet_credential_provider_config_info") == 1
    assert registry.password not in "\n".join([*node2.log_lines(), *node2.events(namespace)])


def test_a_provider_gives_the_password_to_an_account(
    node2: Node, namespace: str, registry: Registry, work_dir: Path
) -> None:
    attributes = {
        "serviceAccountTokenAudience": "registry.example",
        "cacheType": "ServiceAccount",
        "requireServiceAccount": True,
        "requiredServiceAccountAnnotationKeys": ["example.com/pull"],
    }
    flags = provider_flags(
        work_dir,
        "account",
        answer_for(registry),
        matchImages=[registry.server],
        tokenAttributes=attributes,
    )
    start(node2, "AlwaysVerify", *flags)
    account: JSON = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "robot", "annotations": {"example.com/pull": "yes", "other": "no"}},
    }
    node2.apply(account, namespace=namespace)
    desired = image(registry, "for-account")
    node2.apply(
        puller("robot", desired, serviceAccountName="robot"),
        puller("default", desired),
        namespace=namespace,
    )
    node2.wait_running(namespace, "robot")
    node2.wait_waiting(namespace, "default", "ImagePullBackOff")
    (requested,) = requests(work_dir, "account")
    assert requested["serviceAccountAnnotations"] == {"example.com/pull": "yes"}
    token = requested["serviceAccountToken"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["aud"] == ["registry.example"]
    assert claims["kubernetes.io"]["pod"]["name"] == "robot"
    (mapping,) = record(node2, namespace, "robot")["credentialMapping"].values()
    (known,) = mapping["kubernetesServiceAccounts"]
    assert known["name"] == "robot"
    node2.apply(puller("robot2", desired, serviceAccountName="robot"), namespace=namespace)
    node2.wait_running(namespace, "robot2")
    node2.wait_event(namespace, "robot2", PRESENT)
    assert len(requests(work_dir, "account")) == 1
    notified = "\n".join([*node2.log_lines(), *node2.events(namespace)])
    assert token not in notified
    assert registry.password not in notified

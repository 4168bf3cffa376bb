"""Volumes while time goes by: changes, objects that come late, kills of the agent, the end."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import pytest

from kubeletpy_up.requests import ADMIN
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.integration.volumes.test_kinds import create, mount, run, sh

LIVE_S = 0.5
"""A change of an object is in the container's file within this."""


def replace(node: Node, kind: str, namespace: str, name: str, **fields: Any) -> None:
    """Change an object as the administrator."""
    found = node.api.find(kind, namespace, name)
    assert found is not None
    changed = {**found, **fields}
    node.api.call(lambda registry: registry.update(ADMIN, kind, changed, namespace))


def mounts_of(node: Node, uid: str) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line.split()[4] for line in lines if f"{node.root_dir}/pods/{uid}/" in line]


def test_changes_reach_running_containers(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "1", "gone": "x"})
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"1").decode()})
    field = {"fieldPath": "metadata.annotations['v']"}
    found = run(
        node,
        namespace,
        {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "d", "downwardAPI": {"items": [{"path": "v", "fieldRef": field}]}},
        mounts=[
            mount("c", "/c"),
            mount("s", "/s"),
            mount("d", "/d"),
            mount("c", "/fixed", subPath="a"),
        ],
        annotations={"v": "1"},
    )
    uid = node.pod(namespace, "p")["metadata"]["uid"]
    volumes = node.root_dir / "pods" / uid / "volumes"

    def reaches(path: str, text: str, begun: float) -> None:
        file = volumes / path
        while file.read_text() != text:
            assert time.monotonic() - begun < LIVE_S, f"{path} is {file.read_text()!r}"
            time.sleep(0.002)

    begun = time.monotonic()
    replace(node, "configmaps", namespace, "cfg", data={"a": "2", "new": "y"})
    reaches("kubernetes.io~configmap/c/a", "2", begun)
    begun = time.monotonic()
    replace(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"2").decode()})
    reaches("kubernetes.io~secret/s/k", "2", begun)
    begun = time.monotonic()
    node.kubectl("annotate", "pod", "p", "v=2", "--overwrite", namespace=namespace)
    node.until(
        lambda: (volumes / "kubernetes.io~downward-api/d/v").read_text() == "2", "the annotation"
    )
    assert sh(node, found, "cat /c/a /c/new /s/k /d/v; ls /c") == "2y22a\nnew\n"
    assert sh(node, found, "cat /fixed") == "1"


def test_a_pod_waits_for_its_objects(node: Node, namespace: str) -> None:
    main = container("main", FOREVER, volumeMounts=[mount("c", "/c"), mount("s", "/s")])
    volumes = [
        {"name": "c", "configMap": {"name": "late"}},
        {"name": "s", "secret": {"secretName": "s", "items": [{"key": "k", "path": "k"}]}},
    ]
    create(node, "secrets", namespace, "s", data={})
    node.apply(pod("p", main, volumes=volumes), namespace=namespace)
    stated = 'FailedMount: MountVolume.SetUp failed for volume "{}" : {}'
    missing_key = f"secret {namespace}/s references non-existent secret key: k"
    node.wait_event(namespace, "p", stated.format("c", 'configmap "late" not found'))
    node.wait_event(namespace, "p", stated.format("s", missing_key))
    status = container_status(node.pod(namespace, "p"))
    assert status["state"]["waiting"]["reason"] == "ContainerCreating"
    replace(node, "secrets", namespace, "s", data={"k": ""})
    begun = time.monotonic()
    create(node, "configmaps", namespace, "late", data={})
    node.wait_running(namespace, "p")
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("use", ["volumeMounts", "volumeDevices"])
def test_a_claim_that_is_not_there_is_named(node: Node, namespace: str, use: str) -> None:
    uses = {
        "volumeMounts": [mount("data", "/d")],
        "volumeDevices": [{"name": "data", "devicePath": "/dev/x"}],
    }
    main = container("main", FOREVER, **{use: uses[use]})
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    bound = pod("p", main, volumes=[claim])
    bound["spec"]["nodeName"] = node.name  # the scheduler would have it wait for the claim
    node.apply(bound, namespace=namespace)
    node.wait_event(
        namespace,
        "p",
        "FailedMount: Unable to attach or mount volumes: .*"
        f'error processing PVC {namespace}/c: persistentvolumeclaim "c" not found',
    )


def test_an_object_that_is_deleted_stays_in_the_containers(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "1"})
    volume = {"name": "c", "configMap": {"name": "cfg"}}
    found = run(node, namespace, volume, mounts=[mount("c", "/c")])
    node.api.delete("configmaps", namespace, "cfg")
    node.wait_event(namespace, "p", "FailedMount: .*configmap.*cfg.* not found")
    assert sh(node, found, "cat /c/a") == "1"
    status = container_status(node.pod(namespace, "p"))
    assert status["restartCount"] == 0


def test_the_agent_is_killed(node: Node, namespace: str) -> None:
    create(node, "configmaps", namespace, "cfg", data={"a": "1"})
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"hush").decode()})
    found = run(
        node,
        namespace,
        {"name": "c", "configMap": {"name": "cfg"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "e", "emptyDir": {"medium": "Memory"}},
        mounts=[
            mount("c", "/c"),
            mount("s", "/s"),
            mount("e", "/e"),
            mount("e", "/sub", subPath="deep/er"),
        ],
    )
    sh(node, found, "echo kept > /e/file; echo too > /sub/file")
    uid = node.pod(namespace, "p")["metadata"]["uid"]
    before = mounts_of(node, uid)
    version = (node.root_dir / f"pods/{uid}/volumes/kubernetes.io~configmap/c/..data").readlink()
    node.kill()
    replace(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"new").decode()})
    node.start_agent()
    node.until(lambda: sh(node, found, "cat /s/k") == "new", "the new secret", namespace, "p")
    assert mounts_of(node, uid) == before
    link = node.root_dir / f"pods/{uid}/volumes/kubernetes.io~configmap/c/..data"
    assert link.readlink() == version
    assert sh(node, found, "cat /e/file /sub/file /e/deep/er/file") == "kept\ntoo\ntoo\n"
    assert container_status(node.pod(namespace, "p"))["restartCount"] == 0


def test_a_pod_deleted_while_no_agent_runs_leaves_nothing(node: Node, namespace: str) -> None:
    create(node, "secrets", namespace, "s", data={"k": base64.b64encode(b"hush").decode()})
    found = run(
        node,
        namespace,
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "e", "emptyDir": {}},
        mounts=[mount("s", "/s"), mount("e", "/e"), mount("e", "/sub", subPath="x")],
    )
    sh(node, found, "echo data > /e/file")
    uid = node.pod(namespace, "p")["metadata"]["uid"]
    node.kill()
    node.api.delete("pods", namespace, "p", grace=0)
    node.start_agent()
    directory = node.root_dir / "pods" / uid
    node.until(lambda: not directory.exists(), "no directory of the pod", namespace, "p")
    assert mounts_of(node, uid) == []

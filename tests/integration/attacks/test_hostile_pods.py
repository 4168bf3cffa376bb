"""Attacks by what a pod refers to, writes, mounts and is named; each is one of docs/security.md."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.integration.volumes.test_kinds import mount


def made_of(name: str, count: int) -> JSON:
    """A pod with a projected volume of so many configMaps, none of which is there."""
    sources = [{"configMap": {"name": f"{name}-{n}", "optional": True}} for n in range(count)]
    volumes = [{"name": "v", "projected": {"sources": sources}}]
    return pod(name, container("main", FOREVER, volumeMounts=[mount("v", "/v")]), volumes=volumes)


def test_thousands_of_objects_are_refused_and_hundreds_are_not_all_watched(
    node2: Node, namespace: str
) -> None:
    before = node2.descriptors()
    node2.api.create("pods", namespace, bound(made_of("greedy", 4300), node2))
    node2.wait_event(namespace, "greedy", "FailedMount: .*refers to 4300 .* at most 1000")
    node2.api.create("pods", namespace, bound(made_of("large", 900), node2))
    node2.apply(pod("plain", container()), namespace=namespace)
    node2.wait_running(namespace, "plain")
    assert node2.descriptors() < before + 150
    node2.wait_running(namespace, "large", timeout=90)
    assert node2.descriptors() < before + 150


def bound(made: JSON, node: Node) -> JSON:
    return {**made, "spec": {**made["spec"], "nodeName": node.name}}


HUGE = 2**62


def test_a_pod_with_all_the_time_in_the_world_is_restarted_and_deleted(
    node2: Node, namespace: str
) -> None:
    liveness = {
        "exec": {"command": ["false"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "terminationGracePeriodSeconds": HUGE,
    }
    main = container("main", FOREVER, livenessProbe=liveness)
    node2.apply(pod("p", main, terminationGracePeriodSeconds=HUGE), namespace=namespace)
    node2.wait_pod(
        namespace,
        "p",
        lambda found: container_status(found).get("restartCount", 0) > 0,
        "a restart after the liveness probe failed",
    )
    node2.kubectl("delete", "pod", "p", f"--grace-period={HUGE}", "--wait=false", "-n", namespace)
    node2.wait_removed(namespace, "p")


def test_a_host_path_at_the_path_of_the_message_shows_no_file_of_root(
    node2: Node, namespace: str
) -> None:
    """The parent of the mounted file becomes a link to where only root can read."""
    outside, inside = node2.directory / "of-root", node2.directory / "of-the-pod"
    outside.mkdir()
    (outside / "file").touch(0o600)
    (outside / "file").write_text("hunter2")
    (inside / "sub").mkdir(parents=True)
    (inside / "sub" / "file").touch()
    swap = f"printf bye > /tmp/last; mv /d/sub /d/old && ln -s {outside} /d/sub; exit 1"
    main = container(
        "main",
        swap,
        terminationMessagePath="/tmp/last",
        volumeMounts=[mount("file", "/tmp/last"), mount("d", "/d")],
    )
    volumes = [
        {"name": "file", "hostPath": {"path": str(inside / "sub" / "file"), "type": "File"}},
        {"name": "d", "hostPath": {"path": str(inside)}},
    ]
    node2.apply(pod("p", main, volumes=volumes, restartPolicy="Never"), namespace=namespace)
    found = node2.wait_phase(namespace, "p", "Failed")
    assert (inside / "sub" / "file").read_text() == "hunter2", "the link is there"
    message = container_status(found)["state"]["terminated"].get("message", "")
    assert "hunter2" not in message


LIMITED = {"limits": {"ephemeral-storage": "1Mi"}}
FILL = "dd if=/dev/zero of=%s bs=1M count=4 conv=notrunc; sync; sleep 1000"


def with_many_volumes() -> JSON:
    volumes: list[JSON] = [{"name": f"v{n}", "emptyDir": {}} for n in range(1001)]
    volumes.append({"name": "used", "emptyDir": {"sizeLimit": "1Mi"}})
    return pod(
        "p", container("main", FILL % "/u/f", volumeMounts=[mount("used", "/u")]), volumes=volumes
    )


PODS = {
    "last-words": pod("p", container("main", FILL % "/dev/termination-log", resources=LIMITED)),
    "after-unused-volumes": with_many_volumes(),
}


@pytest.mark.parametrize("where", PODS)
def test_what_is_written_counts(node2: Node, namespace: str, where: str) -> None:
    node2.apply(PODS[where], namespace=namespace)
    found = node2.wait_phase(namespace, "p", "Failed", timeout=60)
    assert found["status"]["reason"] == "Evicted"


SEPARATORS = ("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r")
"""Line boundaries of str.splitlines(), besides a newline."""


def test_names_that_look_like_ends_of_lines_block_no_tear_down_and_no_start(
    node2: Node, namespace: str
) -> None:
    forged = "9 1 0:1 / /etc rw - tmpfs tmpfs rw"
    mounts = [
        mount("e", f"/{at}", subPath=f"a{separator}{forged}".replace("/", "_") + separator)
        for at, separator in enumerate(SEPARATORS)
    ]
    odd = container("main", FOREVER, volumeMounts=mounts)
    plain = container("main", FOREVER, volumeMounts=[mount("e", "/e", subPath="a")])
    volumes = [{"name": "e", "emptyDir": {}}]
    node2.apply(pod("odd", odd, volumes=volumes), namespace=namespace)
    node2.wait_running(namespace, "odd")
    node2.apply(pod("plain", plain, volumes=volumes), namespace=namespace)
    node2.wait_running(namespace, "plain")

    node2.api.delete("pods", namespace, "plain", grace=1)
    node2.wait_removed(namespace, "plain")

    node2.terminate()
    node2.start_agent()
    node2.wait_ready()

    node2.api.delete("pods", namespace, "odd", grace=1)
    node2.wait_removed(namespace, "odd")

"""Pods from the manifest directory: their mirrors, edits, removals, and files that are no pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, is_ready, status


def write(node: Node, file: str, content: JSON | str) -> Path:
    """A manifest appears at once and whole, as careful tools write it."""
    path = node.manifests / file
    hidden = node.manifests / f".{file}"
    hidden.write_text(content if isinstance(content, str) else json.dumps(content))
    hidden.rename(path)
    return path


def manifest(name: str, namespace: str, *containers: JSON, **more: object) -> JSON:
    """A static pod."""
    made = pod(name, *containers, **more)
    made["metadata"]["namespace"] = namespace
    return made


def uids(node: Node, namespace: str) -> set[str]:
    """Which pods run in the runtime."""
    sandboxes = [each for each in node.sandboxes(namespace) if each.state == 0]
    return {each.metadata.uid for each in sandboxes}


def test_a_static_pod_and_its_mirror(node2: Node, namespace: str) -> None:
    file = write(node2, "web.json", manifest("web", namespace, labels={"app": "web"}))
    name = f"web-{node2.name}"
    mirror = node2.wait_running(namespace, name)
    notes = mirror["metadata"]["annotations"]
    assert notes["kubernetes.io/config.source"] == "file"
    assert notes["kubernetes.io/config.mirror"] == notes["kubernetes.io/config.hash"]
    (owner,) = mirror["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", node2.name, True)
    assert mirror["metadata"]["labels"] == {"app": "web"}
    assert status(mirror)["podIP"]
    (before,) = uids(node2, namespace)

    # deleting the mirror does not stop the pod, and it comes back
    node2.kubectl("delete", "pod", name, namespace=namespace)
    again = node2.wait_running(namespace, name)
    assert again["metadata"]["uid"] != mirror["metadata"]["uid"]
    assert uids(node2, namespace) == {before}

    # an edit replaces the pod
    write(node2, "web.json", manifest("web", namespace, container("other")))
    edited = node2.wait_pod(
        namespace,
        name,
        lambda found: is_ready(found) and container_status(found, "other"),
        "edited",
    )
    assert edited["spec"]["containers"][0]["name"] == "other"
    node2.until(lambda: len(uids(node2, namespace)) == 1, "one sandbox after the edit")
    assert uids(node2, namespace) != {before}

    # so does taking it away
    file.unlink()
    node2.wait_removed(namespace, name)
    node2.until(lambda: not uids(node2, namespace), "no sandbox after the removal")


def test_a_static_pod_outlives_a_restart_of_the_agent(node2: Node, namespace: str) -> None:
    file = write(node2, "stays.json", manifest("stays", namespace))
    name = f"stays-{node2.name}"
    before = container_status(node2.wait_running(namespace, name))
    node2.kill()
    node2.start_agent()
    node2.apply(pod("later"), namespace=namespace)
    node2.wait_running(namespace, "later")
    after = container_status(node2.wait_running(namespace, name))
    assert (after["containerID"], after["state"]) == (before["containerID"], before["state"])
    file.unlink()
    node2.wait_removed(namespace, name)


def test_the_mirror_of_a_finished_static_pod_comes_back(node2: Node, namespace: str) -> None:
    """After kubectl delete, and after a deletion while the agent was down."""
    once = container("main", command=["true"])
    file = write(node2, "once.json", manifest("once", namespace, once, restartPolicy="Never"))
    name, seen = f"once-{node2.name}", set[str]()

    def ended_anew() -> str:
        found = node2.wait_pod(
            namespace,
            name,
            lambda each: (
                status(each).get("phase") == "Succeeded" and each["metadata"]["uid"] not in seen
            ),
            "a new mirror that shows the end",
        )
        assert container_status(found, "main")["state"]["terminated"]["exitCode"] == 0
        return str(found["metadata"]["uid"])

    seen.add(ended_anew())
    node2.kubectl("delete", "pod", name, namespace=namespace)
    seen.add(ended_anew())
    node2.kill()
    node2.kubectl("delete", "pod", name, "--force", namespace=namespace)
    node2.start_agent()
    ended_anew()
    file.unlink()
    node2.wait_removed(namespace, name)


BAD: dict[str, JSON | str] = {
    "not-yaml.yaml": "{{{{",
    "list.yaml": "- a\n- b\n",
    "no-name.json": {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container()]}},
    "service.json": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
    "secret.json": pod(
        "s",
        container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]),
    ),
    "nothing-runs.json": {**pod("n"), "spec": {"containers": []}},
    "bomb.yaml": "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
    ),
    "binary.yaml": "\0\1\2\x7f",
    "empty.yaml": "",
}


@pytest.mark.parametrize("file", list(BAD))
def test_a_bad_file_harms_nobody(node2: Node, namespace: str, file: str) -> None:
    lines = len(node2.log_lines())
    bad = write(node2, file, BAD[file])
    good = write(node2, "good.json", manifest("good", namespace))
    try:
        node2.wait_running(namespace, f"good-{node2.name}")
        stated = [line for line in node2.log_lines()[lines:] if file in line]
        assert len(stated) <= 1, "one line for one bad file"
        assert stated or file == "empty.yaml"
        assert not any("Traceback" in line for line in node2.log_lines()[lines:])
    finally:
        bad.unlink()
        good.unlink()
    node2.wait_removed(namespace, f"good-{node2.name}")


def test_a_manifest_edited_into_nonsense_keeps_its_pod(node2: Node, namespace: str) -> None:
    file = write(node2, "slip.json", manifest("slip", namespace))
    name = f"slip-{node2.name}"
    before = container_status(node2.wait_running(namespace, name))
    write(node2, "slip.json", "kind: [")
    node2.wait_event(namespace, name, "FailedValidation: .*the pod goes on as it was")
    (uid,) = uids(node2, namespace)
    write(node2, "slip.json", manifest("slip", namespace, labels={"mended": "yes"}))
    node2.wait_pod(
        namespace,
        name,
        lambda found: is_ready(found) and found["metadata"].get("labels") == {"mended": "yes"},
        "as in the fixed manifest",
    )
    assert container_status(node2.pod(namespace, name))["containerID"] != before["containerID"]
    assert uid not in uids(node2, namespace)
    file.unlink()
    node2.wait_removed(namespace, name)

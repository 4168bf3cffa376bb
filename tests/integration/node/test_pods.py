"""Pods live and end on both containerds, as seen by the API, the runtime and the network."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import (
    condition,
    container_status,
    is_ready,
    running,
    status,
    terminated,
    waiting,
)
from tools.env.images import BUSYBOX, busybox_image, write_archive


def test_a_pod_with_two_containers(node: Node, namespace: str) -> None:
    web = "mkdir /www; echo hello > /www/index.html; exec httpd -f -p 8080 -h /www"
    two = pod("web", container("web", web), container("idle"), labels={"app": "web"})
    node.apply(two, namespace=namespace)
    found = node.wait_running(namespace, "web")

    address = status(found)["podIP"]

    def answer() -> bytes:
        with urllib.request.urlopen(f"http://{address}:8080", timeout=2) as reply:
            return bytes(reply.read())

    assert node.until(answer, "an answer of the pod", namespace, "web") == b"hello\n"
    assert status(found)["podIPs"] == [{"ip": address}]
    assert status(found)["hostIP"] == status(found)["hostIPs"][0]["ip"]
    assert status(found)["phase"] == "Running"
    assert status(found)["qosClass"] == "BestEffort"
    assert status(found)["observedGeneration"] == found["metadata"]["generation"] == 1
    kinds = {c["type"]: c["status"] for c in status(found)["conditions"]}
    desired = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    assert kinds == dict.fromkeys((*desired, "PodScheduled"), "True")
    for entry in status(found)["containerStatuses"]:
        assert running(entry)["startedAt"]
        assert entry["ready"]
        assert entry["started"]
        assert entry["restartCount"] == 0
        assert entry["image"] == BUSYBOX
        assert "sha256:" in entry["imageID"]
        assert entry["containerID"].startswith(f"{node.containerd.kind}://")

    row = node.kubectl("get", "pod", "web", "-o", "wide", "--no-headers", namespace=namespace)
    assert row.split()[:4] == ["web", "2/2", "Running", "0"]
    assert row.split()[5:] == [address, node.name, "<none>", "<none>"]
    events = node.events(namespace, "web")
    assert events[0] == f"Scheduled: Successfully assigned {namespace}/web to {node.name}"
    assert [e.split(":")[0] for e in events].count("Started") == 2
    assert "Created: Container created" in events
    assert "Started: Container started" in events


@pytest.mark.needs("logs in the CRI's format")
def test_labels_and_logs_for_crictl_and_log_collectors(node: Node, namespace: str) -> None:
    say = "echo to-stdout; echo to-stderr >&2; " + FOREVER
    node.apply(pod("talks", container("main", say), labels={"app": "t"}), namespace=namespace)
    found = node.wait_running(namespace, "talks")
    uid = found["metadata"]["uid"]

    (sandbox,) = node.sandboxes(namespace)
    names = {
        "io.kubernetes.pod.name": "talks",
        "io.kubernetes.pod.namespace": namespace,
        "io.kubernetes.pod.uid": uid,
    }
    assert {**names, "app": "t"}.items() <= dict(sandbox.labels).items()
    assert (sandbox.metadata.name, sandbox.metadata.attempt) == ("talks", 0)
    record = node.containers(namespace, "talks")["main"]
    assert dict(record.labels) == {**names, "io.kubernetes.container.name": "main"}
    assert record.annotations["io.kubernetes.container.restartCount"] == "0"
    assert re.fullmatch(r"[0-9a-f]{1,8}", record.annotations["io.kubernetes.container.hash"])
    assert record.annotations["io.kubernetes.pod.terminationGracePeriod"] == "5"

    file = node.log_dir(found) / "main" / "0.log"
    node.until(lambda: len(file.read_text().splitlines()) == 2, "two lines in the log")
    lines = file.read_text().splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}\S+"
    assert sorted(re.sub(f"^{time} ", "", line) for line in lines) == [
        "stderr F to-stderr",
        "stdout F to-stdout",
    ]
    link = Path(f"/var/log/containers/talks_{namespace}_main-{record.id}.log")
    assert link.readlink() == file


def test_init_containers_in_order_then_a_sidecar_then_the_rest(node: Node, namespace: str) -> None:
    sidecar = container("sidecar", restartPolicy="Always")
    steps = [container("first", "sleep 0.3"), sidecar, container("second", "true")]
    node.apply(pod("steps", container("main"), initContainers=steps), namespace=namespace)
    seen: list[str] = []

    def done(found: JSON) -> bool:
        word = init_progress(found)
        if word not in seen:
            seen.append(word)
        return bool(running(container_status(found, "main")))

    found = node.wait_pod(namespace, "steps", done, "running main")
    assert "Init:0/3" in seen
    entries = {entry["name"]: entry for entry in status(found)["initContainerStatuses"]}
    assert list(entries) == ["first", "sidecar", "second"]
    assert terminated(entries["first"])["exitCode"] == 0
    assert running(entries["sidecar"])
    records = node.containers(namespace, "steps")
    made = [node.created_at(records[each].id) for each in ("first", "sidecar", "second", "main")]
    assert made == sorted(made)
    row = node.kubectl("get", "pod", "steps", "--no-headers", namespace=namespace)
    assert row.split()[1:3] == ["2/2", "Running"]


def init_progress(found: JSON) -> str:
    """Progress of the init containers as `kubectl get` would print it: "Init:N/M"."""
    entries = status(found).get("initContainerStatuses") or []
    total = len(found["spec"].get("initContainers") or [])
    ended = [e for e in entries if "terminated" in (e.get("state") or {}) or e.get("started")]
    return f"Init:{len(ended)}/{total}"


def test_a_failing_init_container_holds_the_pod(node: Node, namespace: str) -> None:
    node.apply(
        pod("never", initContainers=[container("fails", "exit 3")], restartPolicy="Never"),
        pod("again", initContainers=[container("fails", "exit 3")]),
        namespace=namespace,
    )
    found = node.wait_phase(namespace, "never", "Failed")
    assert terminated(container_status(found, "fails"))["exitCode"] == 3
    assert waiting(container_status(found, "main"))["reason"] == "PodInitializing"
    assert node.containers(namespace, "never").keys() == {"fails"}
    entry = node.wait_waiting(namespace, "again", "CrashLoopBackOff", "fails")
    assert terminated(entry, "lastState")["exitCode"] == 3
    row = node.kubectl("get", "pod", "again", "--no-headers", namespace=namespace)
    assert row.split()[2] == "Init:CrashLoopBackOff"


def test_pods_that_end(node: Node, namespace: str) -> None:
    once = {"restartPolicy": "Never"}
    node.apply(
        pod("good", container("main", "echo done"), **once),
        pod("bad", container("main", "exit 42"), container("fine", "true"), **once),
        pod("killed", container("main"), **once),
        pod("retried", container("main", "exit 5"), restartPolicy="OnFailure"),
        namespace=namespace,
    )
    good = node.wait_phase(namespace, "good", "Succeeded")
    ended = terminated(container_status(good))
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert ended["startedAt"] <= ended["finishedAt"]
    assert condition(good, "Ready")["reason"] == "PodCompleted"
    bad = node.wait_phase(namespace, "bad", "Failed")
    assert terminated(container_status(bad, "main"))["exitCode"] == 42
    assert terminated(container_status(bad, "main"))["reason"] == "Error"
    assert terminated(container_status(bad, "fine"))["exitCode"] == 0
    victim = container_status(node.wait_running(namespace, "killed"))["containerID"]
    os.kill(node.container_pid(victim), signal.SIGKILL)
    killed = node.wait_phase(namespace, "killed", "Failed")
    assert terminated(container_status(killed))["exitCode"] == 137
    retried = node.wait_waiting(namespace, "retried", "CrashLoopBackOff")
    assert terminated(retried, "lastState")["exitCode"] == 5
    rows = node.kubectl("get", "pods", "--no-headers", namespace=namespace).splitlines()
    parts = {row.split()[0]: row.split()[2] for row in rows}
    assert parts == {
        "good": "Completed",
        "bad": "Error",
        "killed": "Error",
        "retried": "CrashLoopBackOff",
    }


def test_a_new_image_restarts_its_container_alone(node: Node, namespace: str) -> None:
    other = "kubeletpy.local/busybox:2"
    archive = node.directory / "other.tar"
    node.containerd.import_images(write_archive(archive, busybox_image(other, {"v": b"2"})))
    node.apply(pod("swap", container("changes"), container("stays")), namespace=namespace)
    before = node.wait_running(namespace, "swap")
    patch = '{"spec":{"containers":[{"name":"changes","image":"' + other + '"}]}}'
    node.kubectl("patch", "pod", "swap", "-p", patch, namespace=namespace)
    after = node.wait_pod(
        namespace,
        "swap",
        lambda found: (
            container_status(found, "changes").get("restartCount") == 1
            and running(container_status(found, "changes"))
        ),
        "running with the new image",
    )
    assert container_status(after, "changes")["image"] == other
    assert terminated(container_status(after, "changes"), "lastState")["exitCode"] == 0
    stays = container_status(after, "stays")
    assert stays["containerID"] == container_status(before, "stays")["containerID"]
    assert status(after)["podIP"] == status(before)["podIP"]
    node.wait_event(
        namespace, "swap", "Killing: Container changes definition changed, will be restarted"
    )
    assert node.wait_running(namespace, "swap")["metadata"]["generation"] == 2


def test_termination_messages(node: Node, namespace: str) -> None:
    once = {"restartPolicy": "Never"}
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    node.apply(
        pod("file", container("main", "printf bye > /dev/termination-log; exit 1"), **once),
        pod("log", container("main", "echo last words; exit 1", **fallback), **once),
        pod("log-ok", container("main", "echo last words; exit 0", **fallback), **once),
        pod(
            "own-path",
            container("main", "echo there > /tmp/m", terminationMessagePath="/tmp/m"),
            **once,
        ),
        pod(
            "long",
            container("main", "head -c 100000 /dev/zero | tr '\\0' x > /dev/termination-log"),
            **once,
        ),
        namespace=namespace,
    )
    messages = {
        name: terminated(container_status(node.wait_phase(namespace, name, phase))).get("message")
        for name, phase in [
            ("file", "Failed"),
            ("log", "Failed"),
            ("log-ok", "Succeeded"),
            ("own-path", "Succeeded"),
            ("long", "Succeeded"),
        ]
    }
    assert messages == {
        "file": "bye",
        "log": "last words\n",
        "log-ok": None,
        "own-path": "there\n",
        "long": "x" * 4096,
    }


def test_out_of_memory(node: Node, namespace: str) -> None:
    eat = "s=x; while :; do s=$s$s$s; done"
    limits = {"resources": {"limits": {"memory": "16Mi"}}}
    node.apply(
        pod("eats", container("main", eat, **limits), restartPolicy="Never"), namespace=namespace
    )
    found = node.wait_phase(namespace, "eats", "Failed")
    ended = terminated(container_status(found))
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    row = node.kubectl("get", "pod", "eats", "--no-headers", namespace=namespace)
    assert row.split()[2] == "OOMKilled"


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

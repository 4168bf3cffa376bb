"""Commands of users, with kubectl of both ends of the supported range, against a running node."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, is_ready, status
from tools.env.process import CommandError

BOTH = pytest.mark.parametrize("version", ["old", "new"], ids=["kubectl-old", "kubectl-new"])


@BOTH
def test_apply_twice_then_change_then_delete(node2: Node, namespace: str, version: str) -> None:
    one = pod("one", container(), labels={"app": "one"})
    say: dict[str, Any] = {"namespace": namespace, "version": version}
    assert node2.apply(one, **say) == "pod/one created\n"
    waited = node2.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=30s", **say)
    assert waited == "pod/one condition met\n"
    assert node2.apply(one, **say) == "pod/one unchanged\n"
    one["metadata"]["labels"]["app"] = "two"
    assert node2.apply(one, **say) == "pod/one configured\n"
    assert node2.pod(namespace, "one")["metadata"]["labels"] == {"app": "two"}
    assert container_status(node2.pod(namespace, "one"))["restartCount"] == 0
    # what may not change is refused in the API's words
    one["spec"]["hostNetwork"] = True
    with pytest.raises(CommandError, match="pod updates may not change fields other than"):
        node2.apply(one, **say)
    assert node2.kubectl("delete", "pod", "one", **say).startswith('pod "one" deleted')
    assert node2.pod(namespace, "one") == {}


@BOTH
def test_label_annotate_patch_edit(node2: Node, namespace: str, version: str) -> None:
    node2.apply(pod("target"), namespace=namespace)
    before = node2.wait_running(namespace, "target")
    say: dict[str, Any] = {"namespace": namespace, "version": version}
    node2.kubectl("label", "pod", "target", "color=red", **say)
    node2.kubectl("annotate", "pod", "target", "note=hello world", **say)
    merge = '{"metadata":{"labels":{"a":"b"}}}'
    node2.kubectl("patch", "pod", "target", "--type=merge", "-p", merge, **say)
    node2.kubectl(
        "patch",
        "pod",
        "target",
        "--type=json",
        "-p",
        '[{"op":"add","path":"/metadata/labels/c","value":"d"}]',
        **say,
    )
    editor = node2.directory / "editor.sh"
    editor.write_text('#!/bin/sh\nsed -i "s/color: red/color: blue/" "$1"\n')
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    tool, environment = node2.kubectl_program(version)
    subprocess.run(
        [tool, "--namespace", namespace, "edit", "pod", "target"],
        env={**environment, "KUBE_EDITOR": str(editor)},
        check=True,
        capture_output=True,
        timeout=30,
    )
    about = node2.pod(namespace, "target")["metadata"]
    assert about["labels"] == {"color": "blue", "a": "b", "c": "d"}
    assert about["annotations"]["note"] == "hello world"
    got = node2.kubectl("get", "pods", "-l", "color=blue", "-o", "name", **say)
    assert got == "pod/target\n"
    entry = container_status(node2.pod(namespace, "target"))
    assert entry["containerID"] == container_status(before)["containerID"], "nothing restarts"


@BOTH
def test_get_and_describe(node2: Node, namespace: str, version: str) -> None:
    node2.apply(pod("shown", container("a"), container("b")), namespace=namespace)
    found = node2.wait_running(namespace, "shown")
    say: dict[str, Any] = {"namespace": namespace, "version": version}
    header, row = node2.kubectl("get", "pods", **say).splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row.split()[:4] == ["shown", "2/2", "Running", "0"]
    header, row = node2.kubectl("get", "pods", "-o", "wide", **say).splitlines()
    wide = ["IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", *wide]
    assert status(found)["podIP"] in row
    header, row = node2.kubectl("get", "nodes", "-o", "wide", version=version).splitlines()
    assert header.split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split()[:3] == [node2.name, "Ready", "<none>"]
    kind = node2.containerd.kind
    assert f"{kind}://" in row
    path = "jsonpath={.status.phase} {.status.containerStatuses[*].ready}"
    assert node2.kubectl("get", "pod", "shown", "-o", path, **say) == "Running true true"
    assert json.loads(node2.kubectl("get", "pod", "shown", "-o", "json", **say))["kind"] == "Pod"
    stated = node2.kubectl("describe", "pod", "shown", **say)
    for text in ("State:          Running", f"Container ID:  {kind}://", "Ready            "):
        assert text in stated
    assert "Created" in stated.split("Events:")[1]
    described = node2.kubectl("describe", "node", node2.name, version=version)
    assert "KubeletReady" in described
    assert f"{namespace} " in described.split("Non-terminated Pods:")[1]
    events = node2.kubectl("get", "events", **say)
    assert events.splitlines()[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "Container started" in events
    assert "KIND:" in node2.kubectl("explain", "pod.spec.containers", version=version)


@BOTH
def test_watching_a_pod_come_and_go(node2: Node, namespace: str, version: str) -> None:
    tool, environment = node2.kubectl_program(version)
    node2.apply(pod("there"), namespace=namespace)
    node2.wait_running(namespace, "there")
    with subprocess.Popen(
        [tool, "--namespace", namespace, "get", "pods", "-w"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as watch:
        lines: Queue[str] = Queue()
        assert watch.stdout is not None
        output = watch.stdout
        reader = threading.Thread(target=lambda: deque(map(lines.put, output), maxlen=0))
        reader.start()
        try:
            # kubectl lists, then watches from there: what comes after its list is not missed
            assert list(until(lines, "Running")) == ["Running"]
            node2.apply(pod("passing"), namespace=namespace)
            parts = list(until(lines, "Running"))
            node2.kubectl("delete", "pod", "passing", "--wait=false", namespace=namespace)
            parts += list(until(lines, "Completed", "Terminating"))
        finally:
            watch.terminate()
            reader.join()
    assert parts[0] == "Pending"
    assert "ContainerCreating" in parts
    assert parts.index("Pending") < parts.index("ContainerCreating") < parts.index("Running")


def until(lines: Queue[str], *desired: str) -> Iterator[str]:
    """The STATUS of each line, up to the first of the expected ones."""
    while True:
        columns = lines.get(timeout=30).split()
        if columns[0] == "NAME":
            continue
        yield columns[2]
        if columns[2] in desired:
            return


def test_wait_for_deletion_and_for_a_field(node2: Node, namespace: str) -> None:
    ends = pod("ends", container("main", "exit 0"), restartPolicy="Never")
    node2.apply(ends, namespace=namespace)
    say: dict[str, Any] = {"namespace": namespace}
    field = "--for=jsonpath={.status.phase}=Succeeded"
    assert "condition met" in node2.kubectl("wait", field, "pod/ends", "--timeout=30s", **say)
    node2.kubectl("delete", "pod", "ends", "--wait=false", **say)
    node2.kubectl("wait", "--for=delete", "pod/ends", "--timeout=30s", **say)


def test_server_side_apply_and_replace(node2: Node, namespace: str) -> None:
    file = node2.directory / f"{os.urandom(4).hex()}.json"
    file.write_text(json.dumps(pod("ssa", labels={"v": "1"})))
    node2.kubectl("apply", "--server-side", "-f", file, namespace=namespace)
    node2.wait_running(namespace, "ssa")
    file.write_text(json.dumps(pod("ssa", labels={"v": "2"})))
    node2.kubectl("apply", "--server-side", "-f", file, namespace=namespace)
    assert node2.pod(namespace, "ssa")["metadata"]["labels"] == {"v": "2"}
    node2.kubectl("replace", "--force", "-f", file, namespace=namespace)
    assert is_ready(node2.wait_running(namespace, "ssa"))


@BOTH
def test_kubectl_run(node2: Node, namespace: str, version: str) -> None:
    image = container()["image"]
    command = ["run", "quick", f"--image={image}", "--restart=Never", "--", "sh", "-c", "exit 4"]
    node2.kubectl(*command, namespace=namespace, version=version)
    found = node2.wait_phase(namespace, "quick", "Failed")
    assert container_status(found)["state"]["terminated"]["exitCode"] == 4

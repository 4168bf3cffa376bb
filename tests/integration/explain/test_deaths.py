"""Forty-seven ways to die on a real runtime: cause and actor of each, and the kill of a child.

The catalogue has the truth (tests/kit/deaths.py). All pods run at the same time; those that end by
themselves wait until the agent follows them all.
"""

from __future__ import annotations

import json
import os
import signal
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.cli import explain as explain_command
from tests.integration.lifecycle.command import command_output, run
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.kit.deaths import WAYS
from tools.env.containerd import Containerd
from tools.env.images import BUSYBOX
from tools.env.waiting import NotReadyError, wait_until

NAMESPACE = "deaths"
GO: JSON = {"volumeMounts": [{"name": "go", "mountPath": "/go"}]}
VOLUMES: JSON = {"volumes": [{"name": "go", "emptyDir": {}}]}
NEVER: JSON = {"restartPolicy": "Never"}
LITTLE: JSON = {"resources": {"limits": {"memory": "24Mi"}}}
OTHER = f"{BUSYBOX}-deaths"
"""The same image under another name."""
EATS = "tail /dev/zero"
FAULTS = {
    "segmentation-fault": b"\x31\xc0\x8b\x00",
    "illegal-instruction": b"\x0f\x0b",
    "division-by-zero": b"\x31\xc9\xf7\xf1",
    "breakpoint": b"\xcc",
    "privileged-instruction": b"\xf4",
}
"""Machine code (x86-64) that ends with the signal of its name."""
ALONE = {
    "exit-0": "exit 0",
    "exit-1": "exit 1",
    "exit-137": "exit 137",
    "exit-139": "exit 139",
    "exit-143": "exit 143",
    "exit-255": "exit 255",
    "shell-without-command": "/nope",
    "shell-without-permission": "echo > /file; /file",
    "shell-whose-child-was-killed": "sh -c 'kill -9 $$$$'; exit $?",
    "sigterm-from-inside": "trap 'exit 143' TERM; (sleep 1; kill 1) & wait",
}
STARVED = {
    "oom-at-its-limit": f"exec {EATS}",
    "oom-of-a-child-and-exit-137": f"{EATS}; exit $?",
    "oom-of-a-child-and-exit-1": f"{EATS}; exit 1",
    "oom-long-before-exit-0": f"{EATS}; exit 0",
}
CHILDREN = ("sigkill-after-an-oom-reason", "deleted-after-an-oom-reason")
"""They live on after the kill of a child, until something else happens to them."""


def program(code: bytes) -> str:
    """A shell script that runs machine code as process 1."""
    start, size = 0x400000, 120
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(2, 62, 1, start + size, 64, 0, 0, 64, 56, 1, 64, 0, 0),
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, *[size + len(code)] * 2, 4096)
    octal = "".join(f"\\{byte:03o}" for byte in header + segment + code)
    return f"printf '{octal}' > /fault; chmod 755 /fault; exec /fault"


def waiting(scripts: Iterable[tuple[str, str]], **more: Any) -> list[JSON]:
    """Containers that wait until the test lets them go."""
    until = "until [ -e /go/x ]; do sleep 0.2; done; "
    return [container(name, until + script, **GO, **more) for name, script in scripts]


def probed(name: str, kind: str, script: str = FOREVER, **more: Any) -> JSON:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, **more}
    return container(name, script, **{kind: probe})


def hooked(name: str, kind: str, *command: str) -> JSON:
    return container(name, lifecycle={kind: {"exec": {"command": list(command)}}})


def sidecar(name: str) -> JSON:
    return container(name, restartPolicy="Always")


def pods() -> list[JSON]:
    """All pods; a container has the name of its way."""
    faults = [(name, program(code)) for name, code in FAULTS.items()]
    more: Any = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    resized: JSON = {"resizePolicy": more, "resources": {"limits": {"memory": "64Mi"}}}
    full = "dd if=/dev/zero of=/full/x bs=1M count=4; sleep 1000"
    volume: JSON = {"name": "full", "emptyDir": {"sizeLimit": "1Mi"}}
    mounted: JSON = {"volumeMounts": [{"name": "full", "mountPath": "/full"}]}
    starved_by_term = f"trap 'exec {EATS}' TERM; while :; do sleep 1 & wait $!; done"
    children = [(name, f"{EATS}; {FOREVER}") for name in CHILDREN]
    return [
        pod("deadline", container("deadline"), activeDeadlineSeconds=25, **NEVER),
        pod("alone", *waiting([*ALONE.items(), *faults]), **NEVER, **VOLUMES),
        pod("starved", *waiting(STARVED.items(), **LITTLE), **NEVER, **VOLUMES),
        pod("child", *waiting(children[:1], **LITTLE), **NEVER, **VOLUMES),
        pod("child-deleted", *waiting(children[1:], **LITTLE), **NEVER, **VOLUMES),
        pod(
            "limited",
            *waiting([("oom-at-the-limit-of-its-pod", f"exec {EATS}")]),
            **NEVER,
            **VOLUMES,
            **LITTLE,
        ),
        pod(
            "killed",
            container("sigkill-from-outside"),
            container("sigkill-by-a-client-of-the-runtime"),
            container("sigterm-from-outside-handled", FOREVER.replace("exit 0", "exit 7")),
            **NEVER,
        ),
        pod("shim", container("shim-killed"), **NEVER),
        pod("shared", container("sigkill-among-shared-pids"), shareProcessNamespace=True, **NEVER),
        pod("host", container("sigterm-among-host-pids", "exec sleep 1000"), hostPID=True, **NEVER),
        pod(
            "probed",
            probed("liveness-probe", "livenessProbe"),
            probed(
                "liveness-probe-and-sigkill", "livenessProbe", DEAF, terminationGracePeriodSeconds=1
            ),
            probed("startup-probe", "startupProbe"),
            **NEVER,
        ),
        pod("hooked", hooked("poststart-hook-fails", "postStart", "false"), **NEVER),
        pod("changed", container("definition-changed")),
        pod("resized", container("resize-with-restart", **resized)),
        pod(
            "over",
            *waiting([("main", "exit 0")]),
            initContainers=[sidecar("sidecar-of-a-pod-that-has-ended")],
            **NEVER,
            **VOLUMES,
        ),
        pod(
            "uninitialized",
            container("main"),
            initContainers=[
                sidecar("container-beside-a-failed-init-container"),
                container("init-container-fails", "sleep 3; exit 3"),
            ],
            **NEVER,
        ),
        pod("sandbox", container("sandbox-killed")),
        pod(
            "sandbox-shared",
            container("sandbox-killed-among-shared-pids", DEAF),
            shareProcessNamespace=True,
            **NEVER,
        ),
        pod("evicted", container("evicted", full, **mounted), volumes=[volume], **NEVER),
        pod("missing", {**container("program-missing"), "command": ["/nope"]}, **NEVER),
        pod(
            "deleted",
            container("deleted"),
            container("deleted-and-deaf", DEAF),
            hooked("prestop-hook-too-long", "preStop", "sleep", "100"),
            container("oom-while-it-is-stopped", starved_by_term, **LITTLE),
        ),
    ]


STATIC = pod("static", container("manifest-removed"))


def explained(node: Node, name: str) -> Any:
    """The explanation of a pod as data; empty when there is none."""
    text = command_output(explain_command.main, node, "-n", NAMESPACE, name, "-o", "json")
    start = text.find("{")  # a note about a pod that was removed comes first
    found = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else {}
    return found.get("last", found)


def causes(node: Node, name: str) -> dict[str, Any]:
    """The cause of each container's first end that has one."""
    found = reversed(explained(node, name).get("exits") or ())
    decided: dict[str, Any] = {}
    for one in found:
        if one["cause"] is not None:
            decided.setdefault(one["container"], one["cause"])
    return decided


def ids(node: Node, name: str) -> dict[str, str]:
    """The id of each container of a pod."""
    found = node.pod(NAMESPACE, name)["status"]["containerStatuses"]
    return {each["name"]: each["containerID"].rpartition("//")[2] for each in found}


def kill(node: Node, name: str, way: str, number: int = signal.SIGKILL) -> None:
    os.kill(node.container_pid(ids(node, name)[way]), number)


def kill_sandbox(node: Node, name: str) -> None:
    uid = node.pod(NAMESPACE, name)["metadata"]["uid"]
    (sandbox,) = [each for each in node.sandboxes(NAMESPACE) if each.metadata.uid == uid]
    os.kill(node.container_pid(sandbox.id), signal.SIGKILL)


def kill_shim(node: Node) -> None:
    pid = node.container_pid(ids(node, "shim")["shim-killed"])
    stat = Path(f"/proc/{pid}/stat").read_text()
    os.kill(int(stat.rpartition(") ")[2].split()[1]), signal.SIGKILL)


def let_go(node: Node, *names: str) -> None:
    for name in names:
        uid = node.pod(NAMESPACE, name)["metadata"]["uid"]
        (node.root_dir / f"pods/{uid}/volumes/kubernetes.io~empty-dir/go/x").touch()


def act(node: Node) -> None:
    """Do to the containers that run what their names say."""
    let_go(node, "alone", "starved", "child", "child-deleted", "limited", "over")
    kill(node, "killed", "sigkill-from-outside")
    kill(node, "killed", "sigterm-from-outside-handled", signal.SIGTERM)
    client = ids(node, "killed")["sigkill-by-a-client-of-the-runtime"]
    node.containerd.ctr("task", "kill", "-s", "SIGKILL", client)
    kill_shim(node)
    kill(node, "shared", "sigkill-among-shared-pids")
    kill(node, "host", "sigterm-among-host-pids", signal.SIGTERM)
    kill_sandbox(node, "sandbox")
    kill_sandbox(node, "sandbox-shared")
    patch: JSON = {"spec": {"containers": [{"name": "definition-changed", "image": OTHER}]}}
    node.kubectl("patch", "pod", "changed", "-p", json.dumps(patch), namespace=NAMESPACE)
    limits: JSON = {"limits": {"memory": "96Mi"}, "requests": {"memory": "96Mi"}}
    patch = {"spec": {"containers": [{"name": "resize-with-restart", "resources": limits}]}}
    resize = ("patch", "pod", "resized", "--subresource", "resize", "-p", json.dumps(patch))
    node.kubectl(*resize, namespace=NAMESPACE)
    node.kubectl("delete", "pod", "deleted", "--wait=false", namespace=NAMESPACE)


def expect(node: Node, made: Iterable[JSON], mistakes: list[str]) -> int:
    """Wait for the causes of all containers of pods, and compare them; returns their number."""
    count = 0
    for each in (*made, STATIC):
        name, spec = each["metadata"]["name"], each["spec"]
        names = [c["name"] for c in (*spec.get("initContainers", ()), *spec["containers"])]
        expected = [way for way in names if way in WAYS]
        try:
            wait_until(
                lambda name=name, expected=expected: set(expected) <= set(causes(node, name)),  # type: ignore[misc]
                f"causes of {name}",
                timeout=30,
            )
        except NotReadyError:
            none = sorted(set(expected) - set(causes(node, name)))
            mistakes.append(f"{name}: {none} have none")
        found = causes(node, name)
        for way in expected:
            count += 1
            cause = found.get(way)
            code = f"exit code {WAYS[way].ending.code}" if way in ALONE else ""
            if cause is not None and (
                (cause["kind"], cause["actor"]) != (WAYS[way].kind, WAYS[way].actor)
                or not cause["evidence"][0].startswith(code)
            ):
                mistakes.append(f"{way}: {cause}")
    return count


def running(name: str) -> Callable[[JSON], bool]:
    """Whether every container of a pod has been started."""

    def started(found: JSON) -> bool:
        return all(
            "waiting" not in container_status(found, each["name"]).get("state", ["waiting"])
            for each in found["spec"]["containers"]
        )

    return started


@pytest.mark.needs("containerd's services")
@pytest.mark.timeout(240)
def test_each_death_is_explained(make_node: MakeNode, session_containerd2: Containerd) -> None:
    node = make_node(session_containerd2)
    node.containerd.ctr("images", "tag", "--force", BUSYBOX, OTHER)
    node.start()
    node.api.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    made = pods()
    static = json.loads(json.dumps(STATIC))
    static["metadata"]["namespace"] = NAMESPACE
    (node.manifests / "static.json").write_text(json.dumps(static))
    mistakes: list[str] = []
    try:
        node.apply(*made, namespace=NAMESPACE)
        for each in made:
            name = each["metadata"]["name"]
            if name not in ("missing", "hooked", "uninitialized", "deadline", "probed", "evicted"):
                node.wait_pod(NAMESPACE, name, running(name), "runs", timeout=60)
        act(node)
        node.wait_running(NAMESPACE, f"static-{node.name}")
        (node.manifests / "static.json").unlink()
        for child in ("child", "child-deleted"):
            node.wait_event(
                NAMESPACE, child, "ProcessOOMKilled: A process was killed .*: process tail"
            )
        kill(node, "child", CHILDREN[0])
        node.kubectl("delete", "pod", "child-deleted", "--wait=false", namespace=NAMESPACE)
        count = expect(node, made, mistakes)
        print(f"{count} ways to die, {len(mistakes)} wrong: {mistakes}")
        assert mistakes == []
        assert count >= 45
        text = run(node, "timeline", "-n", NAMESPACE, "starved")
        assert "killed by the kernel at the memory limit of the container" in text
        node.wait_event(NAMESPACE, "killed", "ContainerDied: .*by a signal from outside")
    finally:
        remove_pods(node, NAMESPACE)
        node.containerd.ctr("images", "rm", OTHER)

"""25 unhealthy pods of a real node, judged by `kubeletpy explain` alone: 100 points.

A node has all of them at once. Other troubles need another state of the machine; the tests that
make it check explain, too:

- a lost runtime: node/test_runtime_lost;
- an unreachable API and calls that hang: lifecycle/test_interrupted_endings;
- broken static manifests, and what outlasts the agent: lifecycle/test_explain;
- CSI drivers that are absent, fail or are busy: storage/test_claims.

Those that no real node is brought into here are rows of the catalogue in
tests/unit/observe/explain.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubeletpy.base.api.times import format_time, parse_time
from kubeletpy.base.api.types import JSON
from tests.integration.explain.judge import Sick, Told, Truth, drawn, explain_pod, wrong
from tests.integration.lifecycle.command import explained
from tests.integration.node.conftest import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import DEAF, container, pod
from tests.integration.node.seen import container_status, status
from tools.env.containerd import Containerd
from tools.env.ports import free_port
from tools.env.registry import Registry

NAMESPACE = "sick"
CRASHERS = ("oom", "hook", "crash", "message", "noprogram", "init")
LOG = "kubectl logs -n sick {0} -c main"
CRASH = ("crash backoff", "main")
START = ("start error", "main")
PULL = ("image backoff", "main")

SICK = [
    Sick(
        "liveness",
        ("keeps being killed because its liveness probe fails: no pulse",),
        "killed-by-liveness-probe",
        lambda it: it.event("Killing"),
        CRASH,
        ("liveness probe requests (command '", 'output "no pulse', LOG.format("liveness")),
    ),
    Sick(
        "sidecar",
        ("initializing: its startup probe has not succeeded yet: no route (container proxy",),
        "startup-probe",
        lambda it: it.started("proxy"),
        ("probe", "proxy"),
        ("check what its startup probe requests (command '", "-c proxy"),
        until=False,
    ),
    Sick(
        "unreachable",
        ("main can't start: ", "connect: connection refused; next try in"),
        "registry-unreachable",
        lambda it: it.event("Failed"),
        PULL,
        ("check the registry's name",),
    ),
    Sick(
        "nosecret",
        ("main can't start: ", "authorization failed: no basic auth credentials; next try in"),
        "image-access-denied",
        lambda it: it.event("Failed"),
        PULL,
        ("create pull secret regcred in namespace sick: it is missing",),
    ),
    Sick(
        "badname",
        ("InvalidImageName", '"UPPER case": invalid reference format'),
        "image-name-invalid",
        lambda it: it.event("Failed"),
        ("image", "main"),
        ("correct the image's name",),
    ),
    Sick(
        "oom",
        ("last exit code 137 OOMKilled at its memory limit of 24Mi",),
        "out-of-memory",
        lambda it: it.event("Started"),
        CRASH,
        ("raise its memory limit of 24Mi", LOG.format("oom")),
    ),
    Sick(
        "hook",
        ("its postStart hook fails: command 'sh -c echo hook says no; exit 7' exited with 7",),
        "post-start-hook",
        lambda it: it.event("FailedPostStartHook"),
        CRASH,
        ("correct its postStart hook (command 'sh -c echo hook", LOG.format("hook")),
    ),
    Sick(
        "crash",
        ("keeps exiting (last exit code 3", '"could not reach db:5432"; it restarts in'),
        "crash",
        lambda it: it.event("Started"),
        CRASH,
        (LOG.format("crash"),),
    ),
    Sick(
        "message",
        ("keeps exiting (last exit code 2", '"bad flag"; it restarts in'),
        "crash",
        lambda it: it.event("Started"),
        CRASH,
        (LOG.format("message"),),
    ),
    Sick(
        "noprogram",
        ('container main can\'t start: StartError: exec: "/nope": stat /nope: no such file',),
        "program-cannot-run",
        lambda it: it.event("Failed"),
        CRASH,
        ("correct the container's command",),
    ),
    Sick(
        "noconfigmap",
        ('CreateContainerConfigError: configmap "nope" not found; next try',),
        "config-object-missing",
        lambda it: it.event("Failed"),
        START,
        ("create configMap nope in namespace sick",),
    ),
    Sick(
        "nokey",
        ("couldn't find key zz in ConfigMap sick/there",),
        "config-key-missing",
        lambda it: it.event("Failed"),
        START,
        ("create it in namespace sick",),
    ),
    Sick(
        "novolume",
        ('not running: volume "v": secret "db" not found; next try',),
        "config-object-missing",
        lambda it: it.event("FailedMount"),
        ("volume", ""),
        ("create secret db in namespace sick",),
    ),
    Sick(
        "unready",
        ("running, not ready: its readiness probe fails: no route to the database",),
        "readiness-probe",
        lambda it: it.started(),
        ("probe", "main"),
        ("check what its readiness probe requests (command '", LOG.format("unready")),
        until=False,
    ),
    Sick(
        "init",
        (
            "not running: init container first keeps exiting (last exit code 5",
            '"schema missing"; it restarts in',
        ),
        "crash",
        lambda it: it.event("Started"),
        ("crash backoff", "first"),
        ("kubectl logs -n sick init -c first",),
    ),
    Sick(
        "deadline",
        ("it has ended: Failed, DeadlineExceeded",),
        "deadline-exceeded",
        lambda it: it.deadline(),
        None,
        ("raise activeDeadlineSeconds",),
    ),
    Sick(
        "port",
        ("refused by this node: NodePorts", "/TCP: sick/has-port); that is final"),
        "refused",
        lambda it: it.event("NodePorts"),
        None,
        ("use another hostPort, or end the pod that has it",),
    ),
    Sick(
        "evicted",
        ('it has ended: Failed, Evicted: Usage of EmptyDir volume "v" exceeds the limit "1Mi"',),
        "evicted",
        lambda it: it.event("Evicted"),
        None,
        ("raise the limit that is named",),
    ),
    Sick(
        "held",
        ("its containers have stopped, but it is not released", "it is in use by process", "sleep"),
        "volume-in-use",
        lambda it: it.event("FailedUnMount"),
        ("volume", ""),
        ("end the process",),
    ),
    Sick(
        "tainted",
        ("(for the node's taint maintenance=now:NoExecute)", "it is killed in"),
        "deleted-for-taint",
        lambda it: it.deleted_at,
        ("grace period", "main"),
        ("toleration {key: maintenance, operator: Equal, value: now, effect: NoExecute}",),
    ),
    Sick(
        "gone",
        (),
        "gone",
        lambda it: it.deleted_at,
        None,
        ("else make another",),
    ),
    Sick(
        "noplace",
        ("not scheduled: Unschedulable: 0/1 nodes are available",),
        "unschedulable",
        lambda it: it.made(),
        ("scheduler default-scheduler: it tries again when nodes or pods change", ""),
        ("give the pod a toleration for the taint {maintenance: now}",),
    ),
    Sick(
        "noclass-test-node",
        ('not running: RuntimeClass "gold" not found; next try',),
        "runtime-class",
        lambda it: it.event("FailedCreatePodSandBox"),
        ("retry", ""),
        ("create RuntimeClass gold",),
    ),
    Sick(
        "pulling",
        ("image ", "/team/large:1 is being pulled for"),
        "image-pull",
        lambda it: it.event("Pulling"),
        ("image pull", "/team/large:1"),
        ("see the registry",),
        until=False,
    ),
    Sick(
        "queued",
        ("/team/other:1 is queued to be pulled (0 before it, 1 under way, at most 1 at once)",),
        "image-pull",
        lambda it: it.event("Pulling"),
        ("image pull", "/team/other:1"),
        ("see the pulls before it",),
        until=False,
    ),
]

TRIED = r"  failed: "
TIMELINES = {
    # what was tried and how it failed, and what it waits for
    "unreachable": ("pull image 127", "connect: connection refused", "back-off", "image backoff"),
    "badname": ("look up image UPPER", TRIED + "Failed to apply default", "image  main"),
    "noconfigmap": ("CreateContainer main", TRIED + "CreateContainerConfigError", "start error"),
    "noprogram": ("StartContainer main", 'exec: "/nope"', "back-off main", "crash backoff"),
    "crash": ("StartContainer main", "back-off main", "crash backoff  main"),
    "noclass-test-node": ("RunPodSandbox attempt 0", 'RuntimeClass "gold" not found', "retry"),
    "novolume": ("volumes", TRIED + 'volume "v": secret "db" not found', "volume"),
    "init": ("StartContainer first", "back-off first", "crash backoff  first"),
    "hook": ("postStart hook main", TRIED, "StopContainer main", "crash backoff  main"),
    "sidecar": ("StartContainer proxy", "not ready yet", "probe  proxy  for", "no route"),
    "port": ("it was never Ready", "admission", TRIED + "NodePorts: "),
}


def failing(tokens: str, **more: Any) -> JSON:
    """A probe that fails with these words each second."""
    return {"exec": {"command": ["sh", "-c", f"echo {tokens}; exit 1"]}, "periodSeconds": 1, **more}


def variable(name: str, key: str) -> list[JSON]:
    return [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}]


def with_volume(script: str = "", **source: Any) -> JSON:
    """Keywords of a pod with a volume, and of its container."""
    mounted: Any = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    made = container(script=script, **mounted) if script else container(**mounted)
    return {"containers": [made], "volumes": [{"name": "v", **source}]}


def pods(registry: Registry, port: int) -> list[JSON]:
    """Pods that exist from the beginning."""
    brief: JSON = {"terminationGracePeriodSeconds": 1}
    first = [container("first", "echo schema missing; exit 5")]
    proxy = container("proxy", restartPolicy="Always", startupProbe=failing("no route"))
    proxy["startupProbe"]["failureThreshold"] = 1000
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo hook says no; exit 7"]}}}
    eats = {"limits": {"memory": "24Mi"}}
    private = {"name": "main", "image": f"{registry.server}/team/app:1"}
    writes = "dd if=/dev/zero of=/v/x bs=1M count=4 2>/dev/null; sleep 1000"
    return [
        # those that something else waits for come first: starts are queued
        pod("held", **brief, **with_volume(emptyDir={"medium": "Memory"})),
        pod("gone", **brief),
        pod("tainted", container(script=DEAF), terminationGracePeriodSeconds=120),
        pod("has-port", container(ports=[{"containerPort": 80, "hostPort": port}])),
        pod("crash", container(script="echo could not reach db:5432; exit 3")),
        pod("message", container(script="echo bad flag > /dev/termination-log; exit 2")),
        pod("noprogram", {**container(), "command": ["/nope"]}),
        pod("oom", container(script="tail /dev/zero", resources=eats)),
        pod("hook", container(lifecycle=hook)),
        pod("init", initContainers=first),
        pod("liveness", container(livenessProbe=failing("no pulse", failureThreshold=1)), **brief),
        pod("evicted", **with_volume(writes, emptyDir={"sizeLimit": "1Mi"})),
        pod("sidecar", initContainers=[proxy, container("migrate")]),
        pod("unready", container(readinessProbe=failing("no route to the database"))),
        pod("deadline", activeDeadlineSeconds=5),
        pod("unreachable", {"name": "main", "image": "127.0.0.1:1/none:1"}),
        pod("nosecret", private, imagePullSecrets=[{"name": "regcred"}]),
        pod("badname", {"name": "main", "image": "UPPER case"}),
        pod("noconfigmap", container(env=variable("nope", "a"))),
        pod("nokey", container(env=variable("there", "zz"))),
        pod("novolume", **with_volume(secret={"secretName": "db"})),
        pod("noplace", nodeSelector={"disk": "gold"}),
    ]


@dataclass
class Ward:
    """A node, and when its pods were deleted."""

    node: Node
    silent: str
    """A registry that accepts connections and never answers."""
    deleted: dict[str, float] = field(default_factory=dict)
    last: dict[str, JSON] = field(default_factory=dict)

    def delete(self, name: str) -> None:
        """Delete a pod, without waiting."""
        self.last[name] = self.node.pod(NAMESPACE, name)
        self.deleted[name] = time.time()
        self.node.kubectl("delete", "pod", name, "--wait=false", namespace=NAMESPACE)

    def truth(self, name: str) -> Truth:
        """A pod in the API, with its events."""
        events = [
            each
            for each in self.node.api.all("events", NAMESPACE)
            if each["involvedObject"].get("name") == name
        ]
        found = self.node.pod(NAMESPACE, name) or self.last.get(name, {})
        return Truth(found, events, self.deleted.get(name, 0.0))

    def wait_restarts(self, name: str) -> None:
        """Wait until neither its first end nor its latest is the other."""

        def again(found: JSON) -> bool:
            entry = container_status(found, "first" if name == "init" else "main")
            return bool(entry.get("restartCount", 0) >= 2)

        self.node.wait_pod(NAMESPACE, name, again, "restarted twice", timeout=60)

    def wait_between_tries(self, sick: Sick) -> None:
        """While a try is made, it is not what the pod waits for."""

        def between() -> bool:
            found = explained(self.node, NAMESPACE, sick.name)
            first: JSON = next(iter(found.get("waits") or ()), {})
            left = (first.get("until") or 0.0) - found.get("at", 0.0)
            return sick.waits is not None and first.get("kind") == sick.waits[0] and left > 1.0

        self.node.until(between, f"{sick.name} waits for {sick.waits}", NAMESPACE, sick.name)

    def judge(self, names: list[str]) -> dict[str, tuple[Told, dict[str, str]]]:
        """Run explain for each pod, and judge the answers."""
        found = {}
        for sick in SICK:
            if sick.name in names:
                if sick.waits is not None and sick.until and sick.name != "noplace":
                    self.wait_between_tries(sick)
                stated = explain_pod(self.node, NAMESPACE, sick.name)
                found[sick.name] = (stated, wrong(sick, self.truth(sick.name), stated))
        return found


@pytest.fixture(scope="module")
def ward(
    make_node: MakeNode, session_containerd2: Containerd, registry: Registry
) -> Iterator[Ward]:
    """A node that pulls one image at a time; its pods are removed at the end."""
    session_containerd2.trust(registry.server)
    node = make_node(session_containerd2)
    node.start()
    node.api.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    there = {"metadata": {"name": "there"}, "data": {"x": "y"}}
    node.api.create("configmaps", NAMESPACE, there)
    manifest = node.manifests / "noclass.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"127.0.0.1:{server.getsockname()[1]}"
        session_containerd2.trust(silent)
        yield Ward(node, silent)
    manifest.unlink(missing_ok=True)
    node.kubectl("taint", "node", node.name, "maintenance-")
    remove_pods(node, NAMESPACE)


def fall_ill(ward: Ward, registry: Registry) -> subprocess.Popen[bytes]:
    """Make all but the pulls; returns the process that holds a mount."""
    node, port = ward.node, free_port()
    node.apply(*pods(registry, port), namespace=NAMESPACE)
    static = pod("noclass", runtimeClassName="gold")
    static["metadata"]["namespace"] = NAMESPACE
    (node.manifests / "noclass.json").write_text(json.dumps(static))
    for name in ("held", "gone", "tainted", "has-port"):
        node.wait_running(NAMESPACE, name)
    uid = node.pod(NAMESPACE, "held")["metadata"]["uid"]
    mount = node.root_dir / f"pods/{uid}/volumes/kubernetes.io~empty-dir/v"
    holder = subprocess.Popen(["sleep", "1000"], cwd=mount)
    try:
        ports = [{"containerPort": 80, "hostPort": port}]
        late = pod("port", container(ports=ports), nodeName=node.name)
        node.apply(late, namespace=NAMESPACE)
        ward.delete("held")
        ward.delete("gone")
        node.wait_removed(NAMESPACE, "gone")
        taint(ward)
    except BaseException:
        holder.kill()
        raise
    return holder


def taint(ward: Ward) -> None:
    """Do as the cluster's taint manager does."""
    node = ward.node
    node.kubectl("taint", "node", node.name, "maintenance=now:NoExecute")
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": format_time(time.time()),
    }
    patch = json.dumps({"status": {"conditions": [condition]}})
    command = ("patch", "pod", "tainted", "--subresource=status", "--type=strategic", "-p", patch)
    node.kubectl(*command, namespace=NAMESPACE)
    ward.delete("tainted")


@pytest.mark.timeout(180)
def test_explain_answers_four_questions_about_25_unhealthy_pods(
    ward: Ward, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four points for each."""
    node = ward.node
    kubectl, _ = node.kubectl_program()
    monkeypatch.setenv("PATH", f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}")
    pulls = ["pulling", "queued"]
    holder = fall_ill(ward, registry)
    try:
        for name in ("deadline", "evicted", "port"):
            node.wait_phase(NAMESPACE, name, "Failed")
        for name in ("liveness", *CRASHERS):
            ward.wait_restarts(name)
        node.wait_event(NAMESPACE, "held", "FailedUnMount")
        judged = ward.judge([sick.name for sick in SICK if sick.name not in pulls])
        lines = {name: drawn(node, NAMESPACE, name) for name in TIMELINES}
        judged |= watch_pulls(ward)
    finally:
        holder.kill()
        holder.wait()
    lost = 0
    for name, (stated, mistakes) in judged.items():
        for question, why in mistakes.items():
            lost += 1
            print(f"{name}: {question}: {why}")
        if mistakes:
            print(stated.text)
    print(f"explain: {4 * len(SICK) - lost} of {4 * len(SICK)} points for {len(SICK)} pods")
    missing = [
        f"{name}: {tokens!r} is not in\n{lines[name]}"
        for name, parts in TIMELINES.items()
        for tokens in parts
        if tokens not in lines[name]
    ]
    assert missing == []
    assert (len(SICK), len(judged), lost) == (25, 25, 0)
    restarted_at_the_announced_time(ward, judged["crash"][0])


def watch_pulls(ward: Ward) -> dict[str, tuple[Told, dict[str, str]]]:
    """Let one image pull hang permanently, and another wait for it."""
    node = ward.node
    tolerates = [{"operator": "Exists"}]
    for name, image, tokens in (
        ("pulling", "large", "is being pulled"),
        ("queued", "other", "is queued"),
    ):
        made = {"name": "main", "image": f"{ward.silent}/team/{image}:1"}
        new = pod(name, made, nodeName=node.name, tolerations=tolerates)
        node.apply(new, namespace=NAMESPACE)
        node.until(
            lambda name=name, tokens=tokens: (
                tokens  # type: ignore[misc]
                in explained(node, NAMESPACE, name).get("verdict", "")
            ),
            tokens,
            NAMESPACE,
            name,
        )
    return ward.judge(["pulling", "queued"])


def restarted_at_the_announced_time(ward: Ward, stated: Told) -> None:
    """The time of the next try was true."""
    until, restarts = stated.pod["waits"][0]["until"], stated.pod["containers"][0]["restarts"]

    def again(found: JSON) -> bool:
        count = container_status(found).get("restartCount", 0)
        assert count <= restarts + 1
        return bool(count > restarts and "waiting" in container_status(found)["state"])

    found = ward.node.wait_pod(NAMESPACE, "crash", again, "restarted", timeout=60)
    assert status(found)["phase"] == "Running"
    ended = container_status(found)["lastState"]["terminated"]
    assert -1.5 <= parse_time(ended["startedAt"]) - until <= 3.0

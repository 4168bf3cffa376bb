"""Five unhealthy pods of a real node, judged by `kubeletpy explain` alone: four answers each.

Their texts and times come from containerd, runc, the kernel and real logs. The catalogue of
troubles is played on a simulated node (tests/sim/test_troubles.py). Other tests that bring a
machine into trouble check explain, too:

- a lost runtime: node/test_runtime_lost;
- an unreachable API and calls that hang: lifecycle/test_interrupted_endings;
- broken static manifests, and what outlasts the agent: lifecycle/test_explain;
- CSI drivers that are absent, fail or are busy: storage/test_claims.
"""

from __future__ import annotations

import subprocess

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from tests.integration.explain.judge import Sick, Told, Truth, drawn, explain_pod, wrong
from tests.integration.lifecycle.command import explained
from tests.integration.node.conftest import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tools.env.containerd import Containerd

NAMESPACE = "sick"
CRASHERS = ("oom", "crash", "noprogram")
LOG = "kubectl logs -n sick {0} -c main"
CRASH = ("crash backoff", "main")

SICK = [
    Sick(
        "unreachable",
        ("main can't start: ", "connect: connection refused; next try in"),
        "registry-unreachable",
        lambda it: it.event("Failed"),
        ("image backoff", "main"),
        ("check the registry's name",),
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
        "crash",
        ("keeps exiting (last exit code 3", '"could not reach db:5432"; it restarts in'),
        "crash",
        lambda it: it.event("Started"),
        CRASH,
        (LOG.format("crash"),),
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
        "held",
        ("its containers have stopped, but it is not released", "it is in use by process", "sleep"),
        "volume-in-use",
        lambda it: it.event("FailedUnMount"),
        ("volume", ""),
        ("end the process",),
    ),
]
TIMELINES = {
    "unreachable": ("pull image 127", "connect: connection refused", "back-off", "image backoff"),
    "noprogram": ("StartContainer main", 'exec: "/nope"', "back-off main", "crash backoff"),
    "crash": ("StartContainer main", "back-off main", "crash backoff  main"),
}
"""The tries, how they failed, and what the pod waits for."""


def pods() -> list[JSON]:
    """The five pods."""
    mounted: JSON = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volume: JSON = {"name": "v", "emptyDir": {"medium": "Memory"}}
    eats = {"limits": {"memory": "24Mi"}}
    return [
        pod("held", container(**mounted), volumes=[volume], terminationGracePeriodSeconds=1),
        pod("crash", container(script="echo could not reach db:5432; exit 3")),
        pod("noprogram", {**container(), "command": ["/nope"]}),
        pod("oom", container(script="tail /dev/zero", resources=eats)),
        pod("unreachable", {"name": "main", "image": "127.0.0.1:1/none:1"}),
    ]


def hold_volume(node: Node) -> subprocess.Popen[bytes]:
    """Delete a pod while a process has its volume as its directory; returns the process."""
    node.wait_running(NAMESPACE, "held")
    uid = node.pod(NAMESPACE, "held")["metadata"]["uid"]
    mount = node.root_dir / f"pods/{uid}/volumes/kubernetes.io~empty-dir/v"
    holder = subprocess.Popen(["sleep", "1000"], cwd=mount)
    node.kubectl("delete", "pod", "held", "--wait=false", namespace=NAMESPACE)
    return holder


def restarted_twice(found: JSON) -> bool:
    """Whether neither its first end nor its latest is the other."""
    return bool(container_status(found).get("restartCount", 0) >= 2)


def judge(node: Node, sick: Sick) -> tuple[Told, dict[str, str]]:
    """Run explain for a pod between two tries, and judge the answers."""

    def between() -> bool:
        found = explained(node, NAMESPACE, sick.name)
        first: JSON = next(iter(found.get("waits") or ()), {})
        left = (first.get("until") or 0.0) - found.get("at", 0.0)
        return first.get("kind") == sick.waits[0] and left > 1.0

    node.until(between, f"{sick.name} waits for {sick.waits}", NAMESPACE, sick.name)
    events = [
        each
        for each in node.api.all("events", NAMESPACE)
        if each["involvedObject"].get("name") == sick.name
    ]
    stated = explain_pod(node, NAMESPACE, sick.name)
    return stated, wrong(sick, Truth(events), stated)


@pytest.mark.timeout(180)
def test_explain_answers_four_questions_about_unhealthy_pods(
    make_node: MakeNode, session_containerd2: Containerd
) -> None:
    node = make_node(session_containerd2)
    node.start()
    node.api.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
    node.apply(*pods(), namespace=NAMESPACE)
    holder = hold_volume(node)
    try:
        for name in CRASHERS:
            node.wait_pod(NAMESPACE, name, restarted_twice, "restarted twice", timeout=60)
        node.wait_event(NAMESPACE, "held", "FailedUnMount")
        judged = {sick.name: judge(node, sick) for sick in SICK}
        lines = {name: drawn(node, NAMESPACE, name) for name in TIMELINES}
        restarted_at_the_announced_time(node, judged["crash"][0])
    finally:
        holder.kill()
        holder.wait()
        remove_pods(node, NAMESPACE)
    assert {name: mistakes for name, (_, mistakes) in judged.items() if mistakes} == {}
    missing = [
        f"{name}: {tokens!r} is not in\n{lines[name]}"
        for name, parts in TIMELINES.items()
        for tokens in parts
        if tokens not in lines[name]
    ]
    assert missing == []


def restarted_at_the_announced_time(node: Node, stated: Told) -> None:
    """The time of the next try was true."""
    until, restarts = stated.pod["waits"][0]["until"], stated.pod["containers"][0]["restarts"]

    def again(found: JSON) -> bool:
        count = container_status(found).get("restartCount", 0)
        assert count <= restarts + 1
        return bool(count > restarts and "waiting" in container_status(found)["state"])

    found = node.wait_pod(NAMESPACE, "crash", again, "restarted", timeout=60)
    assert status(found)["phase"] == "Running"
    ended = container_status(found)["lastState"]["terminated"]
    assert -1.5 <= parse_time(ended["startedAt"]) - until <= 3.0

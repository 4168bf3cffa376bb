"""Five unhealthy pods of a real node, judged by `kubeletpy explain` alone: four answers each.

Their texts and times come from containerd, runc, the kernel and real logs; the truth is that of the
API's events. The catalogue of troubles is played on a simulated node (tests/sim/test_troubles.py).
Other tests that bring a machine into trouble check explain, too:

- a lost runtime: node/test_agent_restarts;
- calls that hang: lifecycle/test_endings;
- broken static manifests, and what outlasts the agent: lifecycle/test_explain;
- CSI drivers whose volume is in use: storage/test_claims.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import explained, run
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tests.integration.node.seen import container_status, status
from tools.env.containerd import Containerd

NAMESPACE = "sick"
EARLY_S, LATE_S = 2.0, 4.0
"""How far from the truth a time may be: the API's times are whole seconds, and CI is slow."""
DAY = r"(?:\d{4}-\d\d-\d\d )?"
"""The date before a time of day that is not of today: a test may run over midnight."""
CRASHERS = ("oom", "crash", "noprogram")
CRASH = ("crash backoff", "main")


@dataclass(frozen=True)
class Sick:
    """A pod and the true answers.

    Attributes:
        verdict: parts of the first line.
        cause: the code.
        event: the first of these was when it went wrong.
        waits: kind and subject of the first wait, which ends at a time.
        hint: part of the next step.
        timeline: parts of it: the tries, how they failed, and the wait.
    """

    name: str
    verdict: tuple[str, ...]
    cause: str
    event: str
    waits: tuple[str, str]
    hint: str
    timeline: tuple[str, ...] = ()


SICK = [
    Sick(
        "unreachable",
        ("main can't start: ", "connect: connection refused; next try in"),
        "registry-unreachable",
        "Failed",
        ("image backoff", "main"),
        "check the registry's name",
        ("pull image 127", "connect: connection refused", "back-off", "image backoff"),
    ),
    Sick(
        "oom",
        ("last exit code 137 OOMKilled at its memory limit of 24Mi",),
        "out-of-memory",
        "Started",
        CRASH,
        "raise its memory limit of 24Mi, or see its log: kubectl logs -n sick oom -c main",
    ),
    Sick(
        "crash",
        ("keeps exiting (last exit code 3", '"could not reach db:5432"; it restarts in'),
        "crash",
        "Started",
        CRASH,
        "kubectl logs -n sick crash -c main",
        ("StartContainer main", "back-off main", "crash backoff  main"),
    ),
    Sick(
        "noprogram",
        # the reason between them is the runtime's
        ("container main can't start: ", ': exec: "/nope": stat /nope: no such file'),
        "program-cannot-run",
        "Failed",
        CRASH,
        "correct the container's command",
        ("StartContainer main", 'exec: "/nope"', "back-off main", "crash backoff"),
    ),
    Sick(
        "held",
        ("its containers have stopped, but it is not released", "it is in use by process", "sleep"),
        "volume-in-use",
        "FailedUnMount",
        ("volume", ""),
        "end the process",
    ),
]


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


def between_tries(node: Node, sick: Sick) -> Any:
    """Wait until the pod waits for its next try; returns the explanation."""

    def waiting() -> Any:
        found = explained(node, NAMESPACE, sick.name)
        first: JSON = next(iter(found.get("waits") or ()), {})
        left = (first.get("until") or 0.0) - found.get("at", 0.0)
        return found if first.get("kind") == sick.waits[0] and left > 1.0 else None

    return node.until(waiting, f"{sick.name} waits for {sick.waits}", NAMESPACE, sick.name)


def check_answers(node: Node, sick: Sick) -> None:
    """Check the answers about a pod, as JSON and as text."""
    found = between_tries(node, sick)
    text = run(node, "explain", "-n", NAMESPACE, sick.name)
    first = next(line for line in text.splitlines() if f"/{sick.name}: " in line)
    assert found["cause"] == sick.cause
    for part in sick.verdict:
        assert part in found["verdict"]
        assert part in first

    events = node.api.all("events", NAMESPACE)
    mine = [each for each in events if each["involvedObject"].get("name") == sick.name]
    true = min(parse_time(e["firstTimestamp"]) for e in mine if e["reason"] == sick.event)
    assert -EARLY_S <= found["first_seen"] - true <= LATE_S
    moment = datetime.fromtimestamp(found["first_seen"]).astimezone()
    assert re.search(rf"^  Since +{DAY}{moment:%H:%M:%S}", text, re.MULTILINE)

    (kind, subject), wait = sick.waits, found["waits"][0]
    assert wait["kind"] == kind
    assert subject in wait["subject"]
    assert wait["until"] - found["at"] <= 300
    until = rf"until {DAY}\d\d:\d\d:\d\d \((in |now)"
    assert re.search(rf"^Waits for\n  {kind}  .*{until}", text, re.MULTILINE)
    assert not found["final"]

    assert sick.hint in found["hint"]
    assert f"\n  To do      {found['hint']}\n" in text
    line = run(node, "timeline", "-n", NAMESPACE, sick.name)
    assert [part for part in sick.timeline if part not in line] == []


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
        for sick in SICK:
            check_answers(node, sick)
        restarted_at_the_announced_time(node, between_tries(node, SICK[2]))
    finally:
        holder.kill()
        holder.wait()
        remove_pods(node, NAMESPACE)


def restarted_at_the_announced_time(node: Node, found: Any) -> None:
    """The time of the next try was true."""
    until, restarts = found["waits"][0]["until"], found["containers"][0]["restarts"]

    def again(found: JSON) -> bool:
        count = container_status(found).get("restartCount", 0)
        assert count <= restarts + 1
        return bool(count > restarts and "waiting" in container_status(found)["state"])

    restarted = node.wait_pod(NAMESPACE, "crash", again, "restarted", timeout=60)
    assert status(restarted)["phase"] == "Running"
    ended = container_status(restarted)["lastState"]["terminated"]
    # the API's times are whole seconds; the shortest delay is 10 s
    assert -1.5 <= parse_time(ended["startedAt"]) - until < 10

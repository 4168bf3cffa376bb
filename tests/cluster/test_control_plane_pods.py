"""The Go kubelet and the agent hand a node to each other whose static pods are its control plane.

Collected where the programs contain a kubelet, or with ``--switches NUMBER``, which builds one;
``-s`` prints the measures. ``--switches 10`` is the proof of docs/adopting.md.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.probes.schedule import RESTART_SLACK_S
from tests.cluster.answers import Answers, answers
from tests.cluster.conftest import built_kubelet, control_plane_programs
from tests.cluster.kept import AGENT, KUBELET, conditions, kept_fields, side_at
from tests.cluster.kubelet_node import FOREVER
from tests.cluster.node import WITHIN
from tests.cluster.objects import deployment
from tests.cluster.rich_pods import differences
from tests.cluster.static_plane import (
    COMPONENTS,
    ETCD,
    NAMESPACE,
    ControlPlaneNode,
    control_plane_node,
)
from tests.cluster.watching import Change, watched
from tools.env.cri import RawRuntime

pytestmark = pytest.mark.timeout(1800)
IDLE_S = 20.0
"""Seconds before the first switch in which the gaps between answers are those of the machine."""
SETTLED_S = 12.0
"""Seconds after a switch: longer than the period of each probe."""
IN = f"--namespace={NAMESPACE}"
UNREADY = re.compile(r'(Ready|ready): ("True" -> "False"|true -> false)$')
"""The Go kubelet shows a static pod as not Ready from its start until it has probed it: a manifest
has no status from which it could continue. The agent reads the mirror's."""
TROUBLE = {"Killing", "Unhealthy", "BackOff", "Failed", "ProbeError", "SandboxChanged"}
"""Reasons of events about pods that are not left alone."""


@pytest.fixture
def node(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlaneNode]:
    kubelet = built_kubelet(request.config)
    programs = control_plane_programs(request.config)
    with control_plane_node(short_dir / "p", programs, kubelet) as made:
        yield made


class Turns:
    """Replaces the program that runs the node, again and again."""

    def __init__(self, node: ControlPlaneNode, kubelet: Path, requested: Answers) -> None:
        self.node, self._kubelet, self._requested = node, kubelet, requested
        self.switches: list[tuple[str, float]] = []

    def switch(self, number: int) -> None:
        """Replace one program by the other, and have it run a pod of a new Deployment."""
        node, name = self.node, f"made-{number}"
        to = AGENT if number % 2 else KUBELET
        if to == AGENT:
            self._check_report(node.preflight())
        began = time.time()
        self.switches.append((to, began))
        node.agent.kill(signal.SIGTERM)
        exited = time.time() - began
        if to == AGENT:
            node.start()
        else:
            node.start_kubelet(self._kubelet)
        node.apply(deployment(name, 1, node.pod_spec(FOREVER)))
        node.kubectl("wait", "--for=condition=Available", f"deployment/{name}", WITHIN)
        available = time.time() - began
        version = node.kubectl("exec", IN, node.static(ETCD), "--", ETCD, "--version")
        assert version.startswith("etcd Version:")
        node.kubectl("delete", f"deployment/{name}", WITHIN)
        time.sleep(SETTLED_S)
        gap = self._requested.longest_gap(began)
        print(
            f"{number} to the {to:7}  old exited {exited:4.1f}  new Deployment available "
            f"{available:4.1f}  longest gap between answers {gap:.2f}",
            flush=True,
        )

    def _check_report(self, report: JSON) -> None:
        outcomes = {
            each["name"]: each["outcome"]
            for each in report["pods"]
            if each["namespace"] == NAMESPACE
        }
        assert outcomes == {self.node.static(name): "kept" for name in (ETCD, *COMPONENTS)}
        assert report["counts"].get("restarted", 0) == report["counts"].get("stopped", 0) == 0
        bad = [each for each in report["findings"] if each["severity"] in ("unclear", "blocks")]
        assert bad == []
        assert report["safe"]


def containers(node: ControlPlaneNode) -> dict[str, str]:
    """Names of the control plane's containers by id, and of its sandboxes, as the runtime has."""
    with RawRuntime(node.runtime.socket) as raw:
        sandboxes = {
            each.id: each.metadata.name
            for each in raw.sandboxes()
            if each.metadata.namespace == NAMESPACE
        }
        return sandboxes | {
            each.id: f"container of {sandboxes[each.pod_sandbox_id]}"
            for each in raw.containers()
            if each.pod_sandbox_id in sandboxes
        }


def pods(node: ControlPlaneNode) -> dict[str, JSON]:
    """The pods of the control plane."""
    listed = json.loads(node.kubectl("get", "pods", IN, "-o", "json"))["items"]
    return {each["metadata"]["name"]: each for each in listed}


def test_switches_leave_the_control_plane_running(
    node: ControlPlaneNode, request: pytest.FixtureRequest
) -> None:
    names = [node.static(each) for each in (ETCD, *COMPONENTS)]
    for name in names:
        node.kubectl("wait", IN, "--for=create", f"pod/{name}", WITHIN)
        node.kubectl("wait", IN, "--for=condition=Ready", f"pod/{name}", WITHIN)
    time.sleep(RESTART_SLACK_S)  # younger containers are judged anew, by both programs
    before, held = pods(node), containers(node)
    assert sorted(before) == sorted(names)
    problems: list[str] = []
    own = f"--field-selector=metadata.name={node.name}"
    with (
        watched(node, "pods", IN) as changes,
        watched(node, "nodes", own) as of_node,
        watched(node, "events", IN) as events,
        answers(node.plane) as requested,
    ):
        time.sleep(IDLE_S)
        print(f"without a switch: longest gap between answers {requested.longest_gap():.2f}")
        seen = len(events)
        turns = Turns(node, built_kubelet(request.config), requested)
        for number in range(1, (request.config.getoption("--switches") or 2) + 1):
            turns.switch(number)
            now = containers(node)
            problems += [f"{number}: {held[each]} was stopped" for each in held.keys() - now.keys()]
            problems += [f"{number}: {now[each]} was started" for each in now.keys() - held.keys()]
            held = now
        after = pods(node)
    kept = {name: kept_fields(before[name]) for name in names}
    problems += [
        f"{side_at(each.at, turns.switches)}: {each.name}: {one}"
        for each in changes
        for one in differences(kept[each.name], kept_fields(each.item))
        if not (UNREADY.search(one) and side_at(each.at, turns.switches).endswith(KUBELET))
    ]
    print("unready under the Go kubelet:", *unready(changes, turns))
    problems += _changed_conditions(of_node, turns)
    problems += [
        f"{side_at(each.at, turns.switches)}: event {each.item['reason']}: {each.item['message']}"
        for each in events[seen:]
        if each.item["reason"] in TROUBLE
    ]
    for name in names:
        problems += differences(kept[name], kept_fields(after[name]), f"at the end: {name}")
    print(f"{len(requested.times)} answers, {len(requested.failures)} failures")
    assert not problems, "\n".join(dict.fromkeys(problems))
    assert requested.failures == []


def unready(changes: list[Change], turns: Turns) -> list[str]:
    """For how long each pod was not Ready, and under which program."""
    since, found = dict[str, float](), []
    for each in changes:
        ready = conditions(each.item)["Ready"][0] == "True"
        if not ready:
            since.setdefault(each.name, each.at)
        elif each.name in since:
            began = since.pop(each.name)
            found.append(f"{side_at(began, turns.switches)} {each.name} {each.at - began:.2f} s")
    return found


def _changed_conditions(of_node: list[Change], turns: Turns) -> list[str]:
    first = conditions(of_node[0].item)
    return [
        f"{side_at(each.at, turns.switches)}: node: {one}"
        for each in of_node
        for one in differences(first, conditions(each.item))
    ]

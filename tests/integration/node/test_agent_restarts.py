"""Agent, API and runtime die, hang and return: healthy containers never notice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.cli import explain
from kubeletpy.remote.generated import api_pb2 as cri
from tests.integration.lifecycle.command import command_output, explained, run, until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.machine_side import bare_id
from tests.integration.node.pods import DEAF, container, pod
from tests.integration.node.seen import container_status, is_ready, status, terminated
from tools.env.cri import RawRuntime


@pytest.fixture(autouse=True)
def the_agent_runs(node: Node) -> Iterator[None]:
    """A test that leaves the agent or the API stopped does not fail the next one."""
    yield
    if node.api.stopped:
        node.api.start()
    if node.agent.pid is None:
        node.start_agent()
        node.wait_ready()


def exits_on_usr1(code: int) -> str:
    """A script that ends with this code when it gets SIGUSR1."""
    return f"trap 'exit {code}' USR1; while :; do sleep 1 & wait $!; done"


def identity(found: JSON) -> dict[str, tuple[str, str, int]]:
    """Id, state and restart count of each container by name: a restart would change them."""
    fields = ("containerStatuses", "initContainerStatuses")
    return {
        entry["name"]: (
            entry["containerID"],
            str(entry["state"].get("running", entry["state"].get("terminated"))),
            entry["restartCount"],
        )
        for field in fields
        for entry in status(found).get(field) or []
    }


def synced_since(node: Node, start: int) -> None:
    """Wait until the agent that was started last has synced its pods."""
    node.until(
        lambda: node.http("/healthz")[0] == 200 and node.metric("kubelet_working_pods") > 0,
        "the new agent's pods",
    )
    assert node.agent.pid != start


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill-9", "sigterm"])
def test_healthy_containers_do_not_restart(node: Node, namespace: str, how: int) -> None:
    sidecar = container("sidecar", restartPolicy="Always")
    inits = [container("init", "true"), sidecar]
    node.apply(
        pod("plain"),
        pod("full", container("a"), container("b"), initContainers=inits),
        namespace=namespace,
    )
    before = {name: identity(node.wait_running(namespace, name)) for name in ("plain", "full")}
    old = node.agent.pid or 0
    node.agent.kill(how)
    node.start_agent()
    synced_since(node, old)
    # a change that only the new agent can make shows that it has taken the pods over
    node.apply(pod("later"), namespace=namespace)
    node.wait_running(namespace, "later")
    for name, was in before.items():
        found = node.pod(namespace, name)
        assert is_ready(found)
        assert identity(found) == was
        ids = {r.id for r in node.containers(namespace, name).values() if r.state == 1}
        assert ids <= {bare_id(one[0]) for one in was.values()}
    assert len([s for s in node.sandboxes(namespace) if s.state == 0]) == 3


def test_killed_in_the_middle_of_starts_and_stops(node: Node, namespace: str) -> None:
    """kill -9 while pods start and end; the next agent finishes both and leaves nothing behind."""
    node.apply(*(pod(f"old{n}") for n in range(3)), namespace=namespace)
    for number in range(3):
        node.wait_running(namespace, f"old{number}")
    node.apply(*(pod(f"new{n}") for n in range(4)), namespace=namespace)
    for number in range(3):
        node.api.delete("pods", namespace, f"old{number}")
    node.until(lambda: len(node.sandboxes(namespace)) > 3, "the first new sandbox", namespace)
    node.kill()
    node.start_agent()
    for number in range(4):
        found = node.wait_running(namespace, f"new{number}")
        assert container_status(found)["restartCount"] <= 1
    for number in range(3):
        node.wait_removed(namespace, f"old{number}")
    node.until(
        lambda: len([s for s in node.sandboxes(namespace) if s.state == 0]) == 4,
        "exactly the sandboxes of the new pods",
        namespace,
    )
    names = [
        (r.labels["io.kubernetes.pod.uid"], r.metadata.name)
        for r in every_container(node, namespace)
        if r.state == 1
    ]
    assert len(names) == len(set(names)) == 4, "never two running containers of one name"


def remove_canceled(node: Node, namespace: str) -> None:
    """Remove the containers whose starts were canceled.

    containerd 1.6 may keep the stopped task of one, and refuses to remove the container until it
    restarts. Nothing else may be in the way of a removal.
    """
    exited = [r for r in every_container(node, namespace) if r.state == cri.CONTAINER_EXITED]
    with RawRuntime(node.containerd.socket) as raw:
        for record in exited:
            try:
                raw.remove_container(record.id)
            except grpc.RpcError as error:
                assert f"cannot delete running task {record.id}" in str(error.details())
                node.containerd.restart()
                return


PODS = 6
"""Number of pods for each restart policy."""
KILLS = 4
LONGEST_S = 0.35
"""Longest time from a creation of a container to a kill: its start takes about as long."""


def test_killed_at_random_moments_of_starts(node: Node, namespace: str) -> None:
    """A start that ends with the agent is neither an end of the container nor a restart."""
    chance = random.Random(33)
    node.apply(
        *(pod(f"never{n}", restartPolicy="Never") for n in range(PODS)),
        *(pod(f"always{n}", restartPolicy="Always") for n in range(PODS)),
        namespace=namespace,
    )
    started = killed = 0
    while killed < KILLS and started < 2 * PODS:
        wait_begun(node, namespace, started + 1)
        time.sleep(chance.uniform(0, LONGEST_S))
        node.kill()
        killed += 1
        started = begun(node, namespace)
        node.start_agent()
    assert killed > 1
    for name in (f"{policy}{n}" for policy in ("never", "always") for n in range(PODS)):
        node.wait_pod(
            namespace,
            name,
            lambda found: status(found).get("phase") in ("Running", "Failed"),
            "started",
        )
    found = {f["metadata"]["name"]: f for f in node.api.all("pods", namespace)}
    assert len(found) == 2 * PODS
    assert {name: status(each)["phase"] for name, each in found.items()} == dict.fromkeys(
        found, "Running"
    )
    counts = {name: container_status(each)["restartCount"] for name, each in found.items()}
    assert counts == dict.fromkeys(found, 0)
    assert not any(container_status(each).get("lastState") for each in found.values())
    alive = [r for r in every_container(node, namespace) if r.state == 1]
    assert len({r.labels["io.kubernetes.pod.uid"] for r in alive}) == len(alive) == 2 * PODS
    remove_canceled(node, namespace)


def begun(node: Node, namespace: str) -> int:
    """Number of pods of a namespace that have a container, in any state."""
    records = every_container(node, namespace)
    return len({record.labels["io.kubernetes.pod.uid"] for record in records})


def wait_begun(node: Node, namespace: str, count: int) -> None:
    """Wait until so many pods have a container."""
    node.until(lambda: begun(node, namespace) >= count, f"containers of {count} pods", namespace)


def every_container(node: Node, namespace: str) -> list[Any]:
    """CRI records of all containers of a namespace, dead ones too."""
    with RawRuntime(node.containerd.socket) as raw:
        return [
            record
            for record in raw.containers()
            if record.labels.get("io.kubernetes.pod.namespace") == namespace
        ]


def test_sigterm_stops_promptly_whatever_goes_on(node: Node, namespace: str) -> None:
    """Also with a container that takes its time to end, and calls under way."""
    node.apply(
        pod("slow", container("main", DEAF), terminationGracePeriodSeconds=60),
        pod("fine"),
        namespace=namespace,
    )
    for name in ("slow", "fine"):
        node.wait_running(namespace, name)
    node.kubectl("delete", "pod", "slow", "--wait=false", namespace=namespace)
    node.wait_event(namespace, "slow", "Killing: Stopping container main")
    node.apply(pod("starting"), namespace=namespace)
    node.terminate()
    assert node.containers(namespace, "fine")["main"].state == 1
    node.start_agent()
    node.wait_running(namespace, "starting")
    node.api.delete("pods", namespace, "slow", grace=1)
    node.wait_removed(namespace, "slow")


def test_the_api_goes_away(node: Node, namespace: str) -> None:
    """Containers end and restart without it, and it gets all of that afterwards."""
    node.apply(
        pod("ends", container("main", exits_on_usr1(9)), restartPolicy="Never"),
        pod("restarts"),
        pod("stays"),
        namespace=namespace,
    )
    found = {name: node.wait_running(namespace, name) for name in ("ends", "restarts", "stays")}
    node.api.stop()
    for name, number in (("ends", signal.SIGUSR1), ("restarts", signal.SIGKILL)):
        os.kill(node.container_pid(container_status(found[name])["containerID"]), number)
    old = bare_id(container_status(found["restarts"])["containerID"])
    node.until(
        lambda: node.containers(namespace, "restarts")["main"].id != old,
        "a restart without the API",
    )
    node.api.start()
    ended = node.wait_phase(namespace, "ends", "Failed")
    assert terminated(container_status(ended))["exitCode"] == 9
    node.wait_pod(
        namespace,
        "restarts",
        lambda each: container_status(each)["restartCount"] == 1 and is_ready(each),
        "reported as restarted",
    )
    assert identity(node.pod(namespace, "stays")) == identity(found["stays"])
    node.wait_ready()
    node.apply(pod("after"), namespace=namespace)
    node.wait_running(namespace, "after", timeout=60)


def test_the_runtime_dies_and_returns(node: Node, namespace: str) -> None:
    node.apply(pod("lives"), namespace=namespace)
    before = container_status(node.wait_running(namespace, "lives"))
    process = node.container_pid(before["containerID"])
    node.containerd.kill()
    lost_at = time.time()
    try:
        lost = node.wait_condition("Ready", "False")
        assert lost["reason"] == "KubeletNotReady"
        assert "container runtime is down" in lost["message"]
        assert "NotReady" in node.kubectl("get", "node", node.name)
        code, text = node.http("/healthz")
        assert code == 500
        assert "runtime" in text
        assert Path(f"/proc/{process}").exists(), "its containers live on"
        node.apply(pod("waits", nodeName=node.name), namespace=namespace)
        explained_as_lost(node, namespace, lost_at)
    finally:
        node.containerd.start()
    node.wait_ready()
    node.wait_running(namespace, "waits")
    found = node.pod(namespace, "lives")
    after = container_status(found)
    assert is_ready(found)
    assert (after["containerID"], after["state"]) == (before["containerID"], before["state"])
    assert after["restartCount"] == 0
    assert node.http("/healthz")[0] == 200


def explained_as_lost(node: Node, namespace: str, lost_at: float) -> None:
    """Check explain for a pod: cause, since when, wait and next step; and for the node."""
    until_verdict(node, namespace, "lives", "the container runtime can't be used")
    found = explained(node, namespace, "lives")
    assert (found["cause"], found["waits"][0]["kind"]) == ("runtime", "runtime")
    assert found["first_seen"] - lost_at < 3, "since the last check before"
    assert "see whether the container runtime at " in found["hint"]
    first = f"node {node.name}: container runtime is down"
    assert run(node, "explain").startswith(first)
    stated = command_output(explain.main, node, f"{namespace}/waits")
    assert f"this node has not taken up pod {namespace}/waits yet" in stated
    assert first in stated


def test_the_runtime_hangs(node: Node, namespace: str) -> None:
    """The runtime does not answer but its socket is there: SIGTERM is obeyed promptly anyway."""
    node.apply(pod("lives"), namespace=namespace)
    before = container_status(node.wait_running(namespace, "lives"))
    node.containerd.pause()
    try:
        node.apply(pod("waits"), namespace=namespace)
        node.terminate()
        node.start_agent()
    finally:
        node.containerd.resume()
    node.wait_running(namespace, "waits")
    after = container_status(node.pod(namespace, "lives"))
    assert after["containerID"] == before["containerID"], node.story(namespace, "lives")

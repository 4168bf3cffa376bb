"""The agent is upgraded from the last release and back, under load, while pods come and go.

``--agent-from COMMIT`` names another older agent, ``--agent-pods 30`` the size of a full node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.probes.schedule import RESTART_SLACK_S
from tests.cluster.node import WITHIN, ClusterNode
from tests.cluster.objects import config_map, secret
from tests.cluster.rich_pods import CONFIG, SECRET, differences, lasting, rich_pod
from tests.cluster.watching import watched
from tests.integration.node import agent
from tests.integration.node.machine import ROOT
from tests.integration.node.pods import DEAF
from tools.release.earlier import release_commit, unpack_agent

pytestmark = pytest.mark.timeout(900)
PROGRAM = (sys.executable, "-m", "kubeletpy.cli.main")
WATCH_S = 5.0
"""Seconds after a switch until its pods are settled: longer than all periods of probes."""
BURN = "while :; do :; done"


@pytest.fixture(scope="module")
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the older agent."""
    commit = request.config.getoption("--agent-from") or release_commit()
    if not commit:
        text = "the history has no release: the agent of this checkout is upgraded to itself"
        warnings.warn(text, stacklevel=1)
    return unpack_agent(commit, tmp_path_factory.mktemp("older"))


@pytest.fixture
def old_node(node: ClusterNode, older: Path) -> Iterator[ClusterNode]:
    """The node, run by the older agent; it gets its own one back."""
    node.stop()
    node.start(PROGRAM, older)
    yield node
    node.stop()
    node.start()


@contextmanager
def busy_processors() -> Iterator[None]:
    """Compete with the node for every processor."""
    burning = [subprocess.Popen(["sh", "-c", BURN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def pods(node: ClusterNode) -> dict[str, JSON]:
    """The rich pods by name."""
    listed = json.loads(node.kubectl("get", "pods", "--selector=kind=rich", "-o", "json"))
    return {each["metadata"]["name"]: each for each in listed["items"]}


def crashing(node: ClusterNode) -> tuple[int, str]:
    """The number of restarts of the crashing pod, and the reason why it waits."""
    found = json.loads(node.kubectl("get", "pod", "crashes", "-o", "json"))["status"]
    (container,) = found["containerStatuses"]
    return container["restartCount"], (container["state"].get("waiting") or {}).get("reason", "")


def switch(node: ClusterNode, turn: int, path: Path) -> None:
    """Replace the agent while one pod is created, one deleted, and one waits to be restarted."""
    comes, goes = f"comes-{turn}", f"goes-{turn}"
    node.apply(node.pod(goes, DEAF, terminationGracePeriodSeconds=5))
    node.wait_ready(goes)
    restarts, _ = crashing(node)
    node.kubectl("delete", "pod", goes, "--wait=false")
    node.apply(node.pod(comes, "sleep 100000"))
    node.stop()
    node.start(agent.COMMAND if path == ROOT else PROGRAM, path)
    node.wait_ready(comes)
    node.kubectl("wait", "--for=delete", f"pod/{goes}", WITHIN)
    node.until(lambda: crashing(node)[1] == "CrashLoopBackOff", "the back-off of a crashing pod")
    assert crashing(node)[0] >= restarts
    assert node.read("pod", comes, ".status.containerStatuses[0].restartCount") == "0"
    time.sleep(WATCH_S)


def test_pods_do_not_notice_an_upgrade_and_a_downgrade(
    old_node: ClusterNode, older: Path, request: pytest.FixtureRequest
) -> None:
    node, names = old_node, [f"rich-{n}" for n in range(request.config.getoption("--agent-pods"))]
    node.apply(config_map(CONFIG, word="one"), secret(SECRET, word="two"))
    node.apply(*(rich_pod(node.name, name) for name in names), node.pod("crashes", "exit 1"))
    node.wait_ready(*names)
    node.until(lambda: crashing(node)[1] == "CrashLoopBackOff", "the back-off of a crashing pod")
    time.sleep(RESTART_SLACK_S)  # a new agent judges younger containers anew, as the kubelet does
    before, since = pods(node), node.plane.audit.length()
    with busy_processors(), watched(node, "pods", "--selector=kind=rich") as seen:
        switch(node, 1, ROOT)
        switch(node, 2, older)

    kept = {name: lasting(pod) for name, pod in before.items()}
    changes = [each.item for each in seen]
    assert {pod["metadata"]["name"] for pod in changes} == set(names)
    flaps = {
        name: found
        for pod in changes
        if (found := differences(kept[name := pod["metadata"]["name"]], lasting(pod)))
    }
    assert flaps == {}
    assert {name: lasting(pod) for name, pod in pods(node).items()} == kept
    patched = {
        each.name
        for each in node.requests(since)
        if each.verb == "patch" and each.path.endswith("/status")
    }
    written = [
        differences(before[pod["metadata"]["name"]]["status"], pod["status"]) for pod in changes
    ]
    assert patched >= {"comes-1", "comes-2"}
    assert not patched & kept.keys(), f"statuses were written again: {written}"
    node.kubectl("delete", "pods", "--all", WITHIN)

"""The API server is upgraded to another minor version under a running agent.

Collected with ``--upgrade-from RELEASE`` only: it needs the programs of two releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import control_plane_programs, node_of
from tests.cluster.node import SHORT_CHECKS, ClusterNode
from tools.control_plane.building import programs
from tools.control_plane.plane import ControlPlane

pytestmark = pytest.mark.timeout(400)
CHECKS = 3
"""Requests for the version after the upgrade, of which the first is reported."""


@pytest.fixture
def older(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of the release that is upgraded."""
    built = programs(request.config.getoption("--upgrade-from"))
    made = ControlPlane(short_dir / "older", built)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def server_of(node: ClusterNode) -> tuple[str, str]:
    """The API server's version: complete, and as a node's minor version."""
    found = json.loads(node.kubectl("get", "--raw", "/version"))
    return found["gitVersion"], f"{found['major']}.{found['minor'].rstrip('+')}"


def published(node: ClusterNode) -> dict[str, str]:
    """The node's version as /configz reports it."""
    answer = node.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/configz")
    found: dict[str, str] = json.loads(answer)["kubeletpy"]["kubernetesVersion"]
    return found


def kubelet_version(node: ClusterNode) -> str:
    return node.read("node", node.name, ".status.nodeInfo.kubeletVersion")


def version_requests(node: ClusterNode, since: int) -> int:
    """How often the agent has requested the API server's version."""
    return sum(each.path == "/version" and each.ended for each in node.requests(since))


def test_a_node_changes_its_version_only_when_it_is_restarted(
    short_dir: Path, older: ControlPlane, request: pytest.FixtureRequest
) -> None:
    with node_of(short_dir / "u", older, command=SHORT_CHECKS) as node:
        before, minor = server_of(node)
        assert kubelet_version(node).startswith(f"v{minor}.0+kubeletpy.")
        node.apply(node.pod("stays", "sleep 100000"))
        node.wait_ready("stays")
        running, pid = node.containers(), node.agent.pid

        older.upgrade(control_plane_programs(request.config))
        after, newer = server_of(node)
        assert newer != minor
        since = older.audit.length()
        expected = (
            f"the API server is {after}, and the node runs as Kubernetes {minor}: "
            f"restart the agent to run as {newer}"
        )
        node.until(lambda: published(node)["restart"] == expected, "the upgrade in /configz")
        node.until(lambda: version_requests(node, since) >= CHECKS, "further checks")
        found = published(node)
        assert (found["running"], found["source"], found["server"]) == (minor, "server", after)
        assert found["why"] == f"the API server is {before}"
        assert node.agent.log.read_text().count(expected) == 1
        explained = node.explain()
        assert f"runs as {minor}: the API server is {before}" in explained
        assert f"API server: {after}" in explained
        assert expected in explained
        reported = node.kubectl("events", "--for", f"node/{node.name}")
        assert reported.count("KubernetesVersionDiffers") == 1

        # it goes on
        node.apply(node.pod("comes", "sleep 100000"))
        node.wait_ready("comes")
        assert node.agent.pid == pid
        assert kubelet_version(node).startswith(f"v{minor}.0+kubeletpy.")

        running |= node.containers()
        node.stop()
        node.start(SHORT_CHECKS)
        node.until(lambda: kubelet_version(node).startswith(f"v{newer}.0+"), "the newer version")
        found = published(node)
        assert (found["running"], found["source"], found["restart"]) == (newer, "server", "")
        assert node.containers() == running
        assert "restart the agent" not in node.explain()

"""The node is of the minor version of its API server, whichever that is."""

from __future__ import annotations

import json

import pytest

from tests.cluster.node import ClusterNode

pytestmark = pytest.mark.timeout(400)


def test_the_node_reports_the_minor_version_of_its_api_server(node: ClusterNode) -> None:
    server = json.loads(node.kubectl("get", "--raw", "/version"))
    version = f"{server['major']}.{server['minor'].rstrip('+')}"
    info = json.loads(node.read("node", node.name, ".status.nodeInfo"))
    assert info["kubeletVersion"].startswith(f"v{version}.0+kubeletpy.")
    # a field of 1.37: the fields that are reported are those of the version, too
    assert ("runningInUserNamespace" in info) is (version not in ("1.35", "1.36"))
    reported = json.loads(node.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/configz"))
    found = reported["kubeletpy"]["kubernetesVersion"]
    assert (found["running"], found["source"]) == (version, "server")
    assert found["server"] == server["gitVersion"]
    assert (node.root_dir / "kubernetes-version").read_text() == f"{version}\n"

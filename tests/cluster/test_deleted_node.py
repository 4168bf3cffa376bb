"""A Node object that an administrator deletes and creates again, beside real controllers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.cluster.conftest import node_of
from tests.cluster.node import WITHIN, ClusterNode
from tools.control_plane.plane import ControlPlane

pytestmark = pytest.mark.timeout(400)
LEASES = ("--namespace=kube-node-lease", "lease")


@pytest.fixture
def own_node(short_dir: Path, plane: ControlPlane) -> Iterator[ClusterNode]:
    """A node beside that of the other tests, which needs its Node object."""
    with node_of(short_dir / "d", plane, name="deleted-node") as made:
        yield made
        made.stop()
        made.kubectl("delete", "node", made.name)


def owner(node: ClusterNode, *kind: str) -> str:
    """Uid of the Node that owns the object of the node's name; empty: there is no such object."""
    found = node.kubectl("get", *kind, node.name, "--ignore-not-found", "-o", "json")
    references = json.loads(found)["metadata"]["ownerReferences"] if found else [{"uid": ""}]
    return str(references[0]["uid"])


def test_a_deleted_node_is_reported_and_one_created_by_hand_is_served(
    own_node: ClusterNode,
) -> None:
    node = own_node
    former = node.read("node", node.name, ".metadata.uid")
    node.until(lambda: owner(node, *LEASES) == former, "the lease has its owner")
    node.kubectl("delete", "node", node.name)
    removed = f"the API has no Node object {node.name} any more"
    node.until(lambda: removed in node.explain(), "explain reports the deletion")
    # the garbage collector removes what the Node owned, and the agent makes none of it again
    node.until(lambda: not owner(node, *LEASES), "the lease is removed")
    node.until(lambda: not owner(node, "csinode"), "the CSINode is removed")
    made: JSON = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
    begun = node.plane.audit.length()
    node.apply(made)
    node.kubectl("wait", "--for=condition=Ready", f"node/{node.name}", WITHIN)
    uid = node.read("node", node.name, ".metadata.uid")
    assert uid != former
    node.until(lambda: owner(node, *LEASES) == uid, "the lease has the new owner")
    node.until(lambda: owner(node, "csinode") == uid, "the CSINode has the new owner")
    labels = json.loads(node.read("node", node.name, ".metadata.labels"))
    assert labels["kubernetes.io/hostname"] == node.name
    assert removed not in node.explain()
    refused = [each for each in node.requests(begun) if each.code == 403]
    assert refused == []
    node.apply(node.pod("again", "sleep 1000000"))
    node.wait_ready("again")
    node.kubectl("delete", "pod", "again", "--grace-period=1")  # later tests count pods

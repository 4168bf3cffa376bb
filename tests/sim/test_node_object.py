"""A Node object that is deleted, or loses parts, while the agent runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.sim.api import NODE
from tests.sim.test_scenarios import manifest, play, until
from tests.sim.test_static_pods import mirror_ready
from tests.sim.user import NAMESPACE
from tests.sim.world import World

NODES, LEASES = "nodes", "leases.coordination.k8s.io"
OWN_LABEL = "kubernetes.io/hostname"
ATTACHES = "volumes.kubernetes.io/controller-managed-attach-detach"


def node(world: World) -> JSON:
    """The Node object; empty: there is none."""
    return world.registry.find("nodes", "", NODE) or {}


def lease(world: World) -> JSON:
    return world.registry.find(LEASES, "kube-node-lease", NODE) or {}


def owners(found: JSON) -> set[str]:
    """Uids of the owners of an object."""
    references = (found.get("metadata") or {}).get("ownerReferences") or ()
    return {each["uid"] for each in references}


def ready(world: World) -> bool:
    conditions = (node(world).get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def delete(world: World) -> None:
    world.registry.delete(ADMIN, NODES, NODE)


def create(world: World) -> str:
    """Somebody creates the Node by hand; returns its uid."""
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"by": "hand"}},
    }
    return str(world.registry.create(ADMIN, NODES, made)["metadata"]["uid"])


@pytest.mark.parametrize("collected", [True, False], ids=["collected", "left"])
def test_a_node_that_was_deleted_and_created_by_hand_is_served_at_once(
    tmp_path: Path, collected: bool
) -> None:
    """``collected``: the cluster has removed what the former Node owned."""

    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        (world.static_dir / "web.yaml").write_text(manifest("web"))
        await until(world, lambda: mirror_ready(world, "web") and ready(world), 60)
        delete(world)
        if collected:
            world.registry.delete(ADMIN, LEASES, NODE, "kube-node-lease")
            by_force = DeleteOptions(grace_period_seconds=0)
            world.registry.delete(ADMIN, "pods", f"web-{NODE}", NAMESPACE, by_force)
        await asyncio.sleep(300)
        assert not node(world), "it was deleted on purpose, as far as the agent can see"
        assert bool(lease(world)) is not collected, "a lease without a Node would stay permanently"
        assert (world.user.get(f"web-{NODE}") is None) is collected, "nobody would own it"
        uid = create(world)
        await until(world, lambda: ready(world), 3)
        assert node(world)["metadata"]["labels"][OWN_LABEL] == NODE
        assert node(world)["metadata"]["labels"]["by"] == "hand"
        assert ATTACHES in node(world)["metadata"]["annotations"]
        assert int(node(world)["status"]["allocatable"]["pods"]) > 0
        await until(world, lambda: owners(lease(world)) == {uid}, 3)
        await until(world, lambda: mirror_ready(world, "web"), 10)
        assert owners(world.user.get(f"web-{NODE}") or {}) == {uid} or not collected
        (world.static_dir / "web.yaml").unlink()

    play(scenario, tmp_path, static=True)


def test_a_node_that_is_replaced_faster_than_the_watch_shows_is_complete(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await until(world, lambda: ready(world), 60)
        complete = node(world)["status"]
        delete(world)
        uid = create(world)
        await until(world, lambda: ready(world), 3)
        await until(world, lambda: owners(lease(world)) == {uid}, 20)
        assert set(complete) <= set(node(world)["status"])

    play(scenario, tmp_path)


def test_labels_and_annotations_that_are_removed_are_written_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await until(world, lambda: ready(world), 60)
        removed = {"labels": {OWN_LABEL: None}, "annotations": {ATTACHES: None}}
        for _ in range(2):
            world.registry.patch(ADMIN, NODES, NODE, {"metadata": removed})
            assert OWN_LABEL not in node(world)["metadata"]["labels"]
            await until(world, lambda: OWN_LABEL in node(world)["metadata"]["labels"], 15)
            assert ATTACHES in node(world)["metadata"]["annotations"]
            await asyncio.sleep(120)
        world.registry.patch(ADMIN, NODES, NODE, {"metadata": {"labels": {OWN_LABEL: "other"}}})
        await asyncio.sleep(120)
        assert node(world)["metadata"]["labels"][OWN_LABEL] == "other", "an administrator's value"

    play(scenario, tmp_path)


def test_parts_of_the_status_that_are_removed_are_written_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await until(world, lambda: ready(world), 60)
        removed = {"status": {"capacity": {"pods": None}, "allocatable": {"cpu": None}}}
        world.registry.patch(ADMIN, NODES, NODE, removed, subresource="status")
        assert "pods" not in node(world)["status"]["capacity"]
        await until(world, lambda: "pods" in node(world)["status"]["capacity"], 15)
        assert "cpu" in node(world)["status"]["allocatable"]
        world.registry.delete(ADMIN, LEASES, NODE, "kube-node-lease")
        await until(world, lambda: bool(lease(world)), 15)

    play(scenario, tmp_path)

"""A start admits running pods again: which ones end is what the node predicts."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from kubeletpy.config import NodeFlags
from kubeletpy.node.build import RuntimeInfo, initial_node
from kubeletpy.node.facts import NodeOptions
from kubeletpy.node.own_node import with_own_amounts
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import NodeState
from kubeletpy.resources.admission.handlers import refused_at_start
from kubeletpy_up.requests import ADMIN
from tests.sim.api import NODE
from tests.sim.test_scenarios import play, status, until
from tests.sim.user import container, pod
from tests.sim.world import FACTS, World


def predicted(world: World) -> dict[str, str]:
    """Pod -> the reason why the next start ends it."""
    settings = world._settings()
    options = NodeOptions.from_settings(settings, NodeFlags(hostname_override=NODE))
    own = initial_node(FACTS, options, RuntimeInfo(), node_ips=(), now=0.0)
    node = with_own_amounts(world.registry.find("nodes", "", NODE), own)  # type: ignore[arg-type]
    pods = [Pod(each) for each in world.user.pods()]  # type: ignore[arg-type]
    found = refused_at_start(pods, node, NodeState())
    return {each.name: found[each.uid].reason for each in pods if each.uid in found}


def ended(world: World) -> dict[str, str]:
    """Pod -> the reason why it has failed."""
    found = {each["metadata"]["name"]: each["status"] for each in world.user.pods()}
    return {name: s.get("reason") or "" for name, s in found.items() if s.get("phase") == "Failed"}


def runs(world: World, name: str) -> bool:
    return status(world, name).get("phase") == "Running"


def label(world: World, disk: str) -> None:
    world.registry.patch(ADMIN, "nodes", NODE, {"metadata": {"labels": {"disk": disk}}})


def test_pods_that_no_longer_fit_end_at_the_start_as_predicted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await until(world, lambda: bool(world.registry.find("nodes", "", NODE)))
        label(world, "ssd")
        await asyncio.sleep(5)
        for name in ("a", "b", "c", "d", "e"):
            made = pod(name, [container("c", "run")])
            if name == "b":
                made["spec"]["nodeSelector"] = {"disk": "ssd"}
            if name == "c":
                port = {"containerPort": 80, "hostPort": 80}
                made["spec"]["containers"][0]["ports"] = [port]
            world.user.create(made)
            await until(world, partial(runs, world, name))
            await asyncio.sleep(1)
        assert predicted(world) == {}
        label(world, "hdd")
        assert predicted(world) == {"b": "NodeAffinity"}
        world.settings = {**world.settings, "maxPods": 3}
        reasons = predicted(world)
        assert reasons == {"b": "OutOfpods", "e": "OutOfpods"}, "b is judged again at the end"
        await asyncio.sleep(60)
        assert ended(world) == {}, "nothing ends while the agent runs"
        for each in world.user.pods():
            # the API does not show how containers of a refused pod ended
            if each["metadata"]["name"] in reasons:
                world.truth.pods[each["metadata"]["uid"]].forced = True
        await world.kill()
        world.start()
        await until(world, lambda: ended(world) == reasons, 30)
        await asyncio.sleep(60)
        assert ended(world) == reasons

    play(scenario, tmp_path)

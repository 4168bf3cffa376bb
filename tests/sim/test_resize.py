"""Resizes in place: what waits gets its turn, and an agent that comes back keeps its promises."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.sim.test_scenarios import both, play, status, until
from tests.sim.user import container, pod, resources
from tests.sim.world import World

HALF = "2"
"""Half of the node's four CPUs; as a limit all of them."""
MORE = "3"


def sized(name: str, cpu: str) -> JSON:
    return pod(name, [container("c", "run", resources=resources(cpu))])


def waits(world: World, name: str) -> str:
    """The reason of a resize that waits; empty when none does."""
    return next(
        (
            condition["reason"]
            for condition in status(world, name).get("conditions") or ()
            if condition["type"] == "PodResizePending"
        ),
        "",
    )


def quota(world: World, name: str) -> int:
    uid = (world.user.get(name) or {})["metadata"]["uid"]
    (runs,) = world.runtime.running(uid)
    return int(runs.config.linux.resources.cpu_quota)


async def one_waits(world: World) -> None:
    """Run two pods; the first requests more than there is beside the second."""
    world.user.create(sized("a", "1"))
    world.user.create(sized("b", HALF))
    await world.converges(30)
    world.user.resize("a", 0, resources(MORE))
    await until(world, lambda: waits(world, "a") == "Deferred")


@both
def test_a_resize_waits_until_another_pod_is_removed(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        await asyncio.sleep(600)
        assert waits(world, "a") == "Deferred"
        assert quota(world, "a") == 200_000
        reported = status(world, "a")["containerStatuses"][0]["resources"]
        assert reported["requests"]["cpu"] == "1"
        world.user.delete("b")
        await until(world, lambda: not world.user.get("b"))
        took = await until(world, lambda: quota(world, "a") == 600_000)
        assert took < 2.0
        await world.converges(10)

    play(scenario, tmp_path, events=events)


@both
def test_a_resize_waits_until_another_pod_is_made_smaller(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        await one_waits(world)
        world.user.resize("b", 0, resources("500m"))
        took = await until(world, lambda: quota(world, "a") == 600_000)
        assert took < 2.0
        await world.converges(10)

    play(scenario, tmp_path, events=events)


@both
def test_resizes_requested_while_the_agent_was_dead(tmp_path: Path, events: bool) -> None:
    """Two running pods are resized to what only one of them can have: neither is refused."""

    async def scenario(world: World) -> None:
        world.user.create(sized("a", "1"))
        world.user.create(sized("b", "1"))
        await world.converges(30)
        await world.kill()
        world.user.resize("a", 0, resources(MORE))
        world.user.resize("b", 0, resources(MORE))
        await asyncio.sleep(5)
        world.start()
        await until(
            world, lambda: sorted((waits(world, "a"), waits(world, "b"))) == ["", "Deferred"]
        )
        await asyncio.sleep(60)
        assert sorted((quota(world, "a"), quota(world, "b"))) == [200_000, 600_000]
        for name in ("a", "b"):
            assert status(world, name)["phase"] == "Running"
            assert status(world, name)["containerStatuses"][0]["restartCount"] == 0

    play(scenario, tmp_path, events=events)


@both
def test_a_promise_outlives_the_agent(tmp_path: Path, events: bool) -> None:
    """A resize that waits still waits after a restart, though its pod would be the first."""

    async def scenario(world: World) -> None:
        await one_waits(world)
        since = [c for c in status(world, "a")["conditions"] if c["type"] == "PodResizePending"]
        await world.kill()
        await asyncio.sleep(60)
        world.start()
        await asyncio.sleep(60)
        again = [c for c in status(world, "a")["conditions"] if c["type"] == "PodResizePending"]
        assert again == since
        assert (quota(world, "a"), quota(world, "b")) == (200_000, 400_000)

    play(scenario, tmp_path, events=events)

"""The wall clock of the node is set: what happens is seen, and waits are as long as without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sim.test_scenarios import both, play, state, status, until
from tests.sim.user import container, pod
from tests.sim.world import World

STEPS = pytest.mark.parametrize("step", [-86_400.0, -300.0, -5.0, 5.0, 300.0, 86_400.0])


@both
@STEPS
def test_an_exit_after_the_clock_was_set_is_seen(tmp_path: Path, events: bool, step: float) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")], restart="Never"))
        await until(world, lambda: "running" in state(world, "a", "c"))
        await asyncio.sleep(3)
        world.set_clock(step)
        (running,) = world.runtime.running()
        world.runtime.kill_container(running, 3)
        took = await until(world, lambda: status(world, "a").get("phase") == "Failed")
        assert took < (1.0 if events else 2.5)

    play(scenario, tmp_path, events=events)


@both
@STEPS
def test_a_pod_deleted_after_the_clock_was_set_is_removed(
    tmp_path: Path, events: bool, step: float
) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        await until(world, lambda: "running" in state(world, "a", "c"))
        await asyncio.sleep(3)
        world.set_clock(step)
        world.user.delete("a")
        assert await until(world, lambda: world.user.get("a") is None) < 4.0

    play(scenario, tmp_path, events=events)

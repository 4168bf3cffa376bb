"""The wall clock of the node is set: what happens is seen, and waits are as long as without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sim import scripts
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


@both
@STEPS
def test_a_pull_that_failed_is_retried_in_time(tmp_path: Path, events: bool, step: float) -> None:
    async def scenario(world: World) -> None:
        world.runtime.registry_up = False
        world.user.create(pod("a", [container("c", "run", scripts.REMOTE)]))
        await until(world, lambda: "waiting" in state(world, "a", "c"))
        await asyncio.sleep(60)  # the delay is 40 s or 80 s by now
        world.set_clock(step)
        world.runtime.registry_up = True
        await until(world, lambda: "running" in state(world, "a", "c"), within=100)

    play(scenario, tmp_path, events=events)


@both
@STEPS
def test_a_crash_loop_waits_at_most_its_delay(tmp_path: Path, events: bool, step: float) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "instant")]))
        await until(world, lambda: restarts(world) >= 2, within=60)
        before = restarts(world)
        world.set_clock(step)
        await until(world, lambda: restarts(world) > before, within=45)

    def restarts(world: World) -> int:
        statuses = status(world, "a").get("containerStatuses") or [{}]
        return int(statuses[0].get("restartCount", 0))

    play(scenario, tmp_path, events=events)


@both
@STEPS
def test_a_container_started_after_the_clock_was_set_is_ready_once_probed(
    tmp_path: Path, events: bool, step: float
) -> None:
    """It is no container that an earlier agent left, whatever its start looks like."""

    async def scenario(world: World) -> None:
        probe = {"exec": {"command": ["x"]}, "periodSeconds": 60}
        world.user.create(pod("a", [{**container("c", "run"), "readinessProbe": probe}]))
        await until(world, lambda: is_ready(world))
        await asyncio.sleep(30)
        world.set_clock(step)
        world.user.create(pod("b", [{**container("c", "run"), "readinessProbe": probe}]))
        # by an early run: containers that an earlier agent left are probed within a period
        assert await until(world, lambda: is_ready(world, "b")) < 5.0

    def is_ready(world: World, name: str = "a") -> bool:
        known = {c["type"]: c["status"] for c in status(world, name).get("conditions") or ()}
        return known.get("Ready") == "True"

    play(scenario, tmp_path, events=events)

"""The node's wall clock is set: observations count, and waits are as long as without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sim import scripts
from tests.sim.records import Container, Sandbox
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
@pytest.mark.parametrize("after", [None, 0.5, 5.0], ids=["at once", "soon", "later"])
def test_a_crash_loop_waits_its_delay(
    tmp_path: Path, events: bool, step: float, after: float | None
) -> None:
    """``after``: when the clock is set, in seconds after the end. The invariants check the rest."""

    async def scenario(world: World) -> None:
        ended = ends(world)

        def set_clock_at_once(what: str, whom: Container | Sandbox) -> None:
            if after is None and what == "exit" and len(ended) == 3:
                world.set_clock(step)

        world.runtime.observers.append(set_clock_at_once)
        world.user.create(pod("a", [container("c", "instant")]))
        await until(world, lambda: len(ended) == 3, within=60)
        if after is not None:
            await asyncio.sleep(after)
            world.set_clock(step)
        await until(world, lambda: len(ended) == 4, within=60)
        assert 20.0 <= ended[3] - ended[2] < 24.0

    play(scenario, tmp_path, events=events)


@both
@STEPS
def test_a_crash_loop_waits_at_most_its_delay_after_a_restart_of_the_agent(
    tmp_path: Path, events: bool, step: float
) -> None:
    """The clock is set while no agent runs: the next one has only wall times."""

    async def scenario(world: World) -> None:
        ended = ends(world)
        world.user.create(pod("a", [container("c", "instant")]))
        await until(world, lambda: len(ended) == 3, within=60)
        await asyncio.sleep(5)
        await world.kill()
        world.set_clock(step)
        world.start()
        assert await until(world, lambda: len(ended) == 4, within=60) < 24.0
        await until(world, lambda: len(ended) == 5, within=60)
        assert 10.0 <= ended[4] - ended[3] < 44.0

    play(scenario, tmp_path, events=events)


@both
def test_init_containers_run_again_in_a_new_sandbox_after_the_clock_was_set_back(
    tmp_path: Path, events: bool
) -> None:
    async def scenario(world: World) -> None:
        inits = [container("i0", "done"), container("i1", "done")]
        world.user.create(pod("a", [container("c", "run")], init=inits))
        await until(world, lambda: "running" in state(world, "a", "c"))
        await asyncio.sleep(30)
        world.set_clock(-300.0)
        (sandbox,) = world.runtime.sandboxes.values()
        world.runtime.kill_sandbox(sandbox)
        await until(world, lambda: bool(world.runtime.running()), within=60)
        # the invariants check that both have run before

    play(scenario, tmp_path, events=events)


def ends(world: World) -> list[float]:
    """Collects when containers end, in seconds of the event loop's clock."""
    found: list[float] = []

    def note(what: str, whom: Container | Sandbox) -> None:
        if what == "exit":
            found.append(world.loop.time())

    world.runtime.observers.append(note)
    return found


@both
@STEPS
def test_a_container_started_after_the_clock_was_set_is_ready_once_probed(
    tmp_path: Path, events: bool, step: float
) -> None:
    """It does not count as a container of an earlier agent, whatever its start time is."""

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

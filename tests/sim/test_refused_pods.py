"""Pods that the node refuses: what the API shows of them stays."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.sim.test_scenarios import both, play, status, until
from tests.sim.user import container, pod, resources
from tests.sim.world import World

FAR_TOO_MUCH = resources("640")


@both
def test_a_refused_pod_is_shown_as_before_by_the_next_agent(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        giant = container("c", "run", resources=FAR_TOO_MUCH)
        init = [container("i", "done")]
        world.user.create(pod("a", [giant]))
        world.user.create(pod("b", [giant], init=init))
        await until(world, lambda: status(world, "b").get("phase") == "Failed")
        await until(world, lambda: status(world, "a").get("phase") == "Failed")
        before = status(world, "a"), status(world, "b")
        assert [each["reason"] for each in before] == ["OutOfcpu", "OutOfcpu"]
        await world.kill()
        world.start()
        world.user.create(pod("c", [container("c", "run")]))
        await until(world, lambda: status(world, "c").get("phase") == "Running")
        await asyncio.sleep(100)
        assert (status(world, "a"), status(world, "b")) == before

    play(scenario, tmp_path, events=events)

"""Many pods at once: nobody's signal is late, nobody's grace is cut, nothing is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.runtime_manager.act.mutations import STOP_WAITS_AT_MOST_S
from tests.sim.records import Container, Sandbox
from tests.sim.test_scenarios import both, play, until
from tests.sim.user import container, pod
from tests.sim.world import World

GRACE = 5
SLACK = 0.5
"""Seconds until a watch has brought so many changes, and from a call to its effect."""


class Ends:
    """When each container first got a stop request, and when it ended, by its pod's name."""

    def __init__(self, world: World) -> None:
        self._loop = asyncio.get_running_loop()
        self.requested: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        world.runtime.observers.append(self._changed)

    def _changed(self, what: str, whom: Container | Sandbox) -> None:
        if isinstance(whom, Container):
            times = {"stop-asked": self.requested, "exit": self.ended}.get(what)
            if times is not None:
                key = f"{whom.sandbox.config.metadata.name} {whom.name}"
                times.setdefault(key, self._loop.time())

    def late(self, since: float) -> float:
        """Longest wait of a container for its stop request, in seconds."""
        return max(self.requested.values()) - since

    def least_grace(self) -> float:
        """Shortest time between a container's stop request and its end, in seconds."""
        return min(self.ended[name] - at for name, at in self.requested.items())


@pytest.mark.parametrize(("events", "deaf_containers"), [(True, 1), (False, 3)])
def test_many_deaf_pods_are_deleted_together(
    tmp_path: Path, events: bool, deaf_containers: int
) -> None:
    async def scenario(world: World) -> None:
        deaf = [container(f"c{n}", "stubborn") for n in range(deaf_containers)]
        for number in range(60):
            world.user.create(pod(f"deaf{number}", deaf, grace=GRACE))
        for number in range(10):
            world.user.create(pod(f"good{number}", [container("c", "run")], grace=GRACE))
        await world.converges(120)
        ends, since = Ends(world), world.loop.time()
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await until(world, lambda: not world.user.pods(), 60)
        took = world.loop.time() - since
        assert len(ends.requested) == 60 * deaf_containers + 10
        assert ends.late(since) < STOP_WAITS_AT_MOST_S + SLACK
        least = min(
            ends.ended[name] - at for name, at in ends.requested.items() if name.startswith("deaf")
        )
        assert least >= GRACE
        good = [at - since for name, at in ends.ended.items() if name.startswith("good")]
        assert max(good) < STOP_WAITS_AT_MOST_S + SLACK, "they don't wait for the deaf ones"
        assert took < STOP_WAITS_AT_MOST_S + GRACE + 4, "the sandboxes go a few at a time"

    play(scenario, tmp_path, events=events)


@both
def test_the_agent_is_killed_while_many_wait_for_their_signal(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        for number in range(60):
            world.user.create(pod(f"p{number}", [container("c", "stubborn")], grace=GRACE))
        await world.converges(120)
        ends = Ends(world)
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await asyncio.sleep(0.5)
        assert 0 < len(ends.requested) < 60, "some wait"
        await world.kill()
        world.start()
        since = world.loop.time()
        await until(world, lambda: not world.user.pods(), 60)
        assert len(ends.ended) == 60
        assert ends.late(since) < STOP_WAITS_AT_MOST_S + 1.0
        assert world.loop.time() - since < STOP_WAITS_AT_MOST_S + GRACE + 5

    play(scenario, tmp_path, events=events)


@both
def test_a_grace_cut_short_by_force_does_not_wait_for_the_rest(
    tmp_path: Path, events: bool
) -> None:
    async def scenario(world: World) -> None:
        for number in range(60):
            world.user.create(pod(f"p{number}", [container("c", "stubborn")], grace=300))
        await world.converges(120)
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await asyncio.sleep(1.0)
        since = world.loop.time()
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"], 1)
        await until(world, lambda: not world.user.pods(), 60)
        assert world.loop.time() - since < STOP_WAITS_AT_MOST_S + 1 + 4

    play(scenario, tmp_path, events=events)

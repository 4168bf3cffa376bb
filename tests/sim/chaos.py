"""One random history: a node, its users, and everything that can go wrong, all by one seed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.sim.api import NODE
from tests.sim.faults import random_rates
from tests.sim.loop import call_later, spawn
from tests.sim.user import RandomUser
from tests.sim.world import World

CHANGES = ("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer")
CONVERGES_WITHIN = 1500.0
"""Seconds: hung calls (240), pull and crash-loop delays (300 each), a relist while events flow
(300), one after the other at worst."""
EMPTY_WITHIN = 700.0
"""Deletion with hung leftovers, then a housekeeping pass and a round of garbage collection."""


CLOCK_STEPS = (0.3, 5.0, 60.0, 300.0, 3600.0, 86_400.0)
"""Seconds by which the node's wall clock is set, in either direction."""
CLOCK_SET_EVERY = 20.0
"""Seconds between two of them, on average."""


async def set_clock_at_random(world: World) -> None:
    """Set the node's wall clock in both directions, in half of all worlds; it is never put right.

    It has a source of chance of its own: the rest of a history hardly depends on it.
    """
    rng = world.rng("clock")
    if rng.random() < 0.5:
        return
    while True:
        await asyncio.sleep(rng.expovariate(1 / CLOCK_SET_EVERY))
        world.set_clock(rng.choice((-1, 1)) * rng.choice(CLOCK_STEPS))


class Chaos:
    """Makes things go wrong for a while."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self.harsh = rng.choice((0.0, 0.02, 0.05, 0.1))

    async def unleash(self, seconds: float) -> None:
        """Cause faults, outages, deaths and users' actions for so many seconds."""
        world, rng = self._world, self._rng
        self._set_rates()
        user = self.user()
        end = world.loop.time() + seconds
        clock = spawn(set_clock_at_random(world))
        while world.loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / 2.5))
            if rng.random() < 0.6:
                user.act(max_pods=4)
            else:
                await self._mishap()
        clock.cancel()
        await self._revive()

    def user(self) -> RandomUser:
        """The user that makes, changes and deletes pods."""
        return RandomUser(self._world.user, self._world.rng("user"))

    def _set_rates(self) -> None:
        world, rng = self._world, self._rng
        if self.harsh:
            world.runtime_faults.rates = random_rates(rng, self.harsh)
            world.api_faults.rates = random_rates(rng, self.harsh)
        world.server.graph_delay = rng.choice((0.0, 0.05, 1.0))
        world.server.watch_lag = rng.choice((0.0, 0.0, 0.5, 5.0))
        if world.runtime.reports is not None:
            world.runtime.reports.lose = rng.choice((0.0, 0.0, 0.2, 1.0))

    async def _mishap(self) -> None:
        world, rng = self._world, self._rng
        point = rng.random()
        if point < 0.35:
            await self._restart()
        elif point < 0.45:
            self._toggle_runtime()
        elif point < 0.55:
            self._toggle_api()
        elif point < 0.6:
            world.server.break_watches()
        elif point < 0.65:
            world.server.removed = not world.server.removed
            world.server.break_watches()
        elif point < 0.7 and world.runtime.reports is not None:
            world.runtime.reports.break_stream()
        elif point < 0.75:
            world.runtime.network_ready = not world.runtime.network_ready
        elif point < 0.8:
            world.runtime.registry_up = not world.runtime.registry_up
        elif point < 0.9:
            self._kill_something()

    async def _restart(self) -> None:
        world, rng = self._world, self._rng
        if not world.alive:
            await world.buried()
            world.start()
            return
        point = rng.random()
        if point < 0.3:
            await world.stop()
        elif point < 0.6:
            await world.kill()
        elif point < 0.8:
            self._die_at_a_call(rng.randrange(1, 60))
            return
        else:
            self._die_in_a_change(rng.randrange(1, 15), rng.uniform(0.0, 0.1))
            return
        if rng.random() < 0.7:
            world.start()

    def _die_at_a_call(self, calls: int) -> None:
        world = self._world
        due = world.steps + calls

        def on_step(where: str, what: str, number: int) -> None:
            if number >= due:
                world.on_step = None
                world.history.note("world", f"kills the agent at {where} of {what}")
                world.die()

        world.on_step = on_step

    def _die_in_a_change(self, calls: int, after: float) -> None:
        """The agent is killed while the runtime works on a call that changes it."""
        world, left = self._world, calls

        def on_step(where: str, what: str, number: int) -> None:
            nonlocal left
            if where != "call" or what not in CHANGES:
                return
            left -= 1
            if left <= 0:
                world.on_step = None
                world.history.note("world", f"kills the agent {after:.3f} s into {what}")
                call_later(after, world.die)

        world.on_step = on_step

    def _toggle_runtime(self) -> None:
        if self._world.connection.up:
            self._world.runtime_down()
        else:
            self._world.runtime_up()

    def _toggle_api(self) -> None:
        if self._world.server.up:
            self._world.api_down()
        else:
            self._world.api_up()

    def _kill_something(self) -> None:
        world, rng = self._world, self._rng
        running = world.runtime.running()
        ready = [s for s in world.runtime.sandboxes.values() if s.ready]
        if running and rng.random() < 0.7:
            world.runtime.kill_container(rng.choice(running), rng.choice((137, 1, 0)))
        elif ready:
            sandbox = rng.choice(ready)
            world.history.note("world", f"kills sandbox {sandbox.id}")
            world.runtime.kill_sandbox(sandbox)

    async def _revive(self) -> None:
        world = self._world
        world.on_step = None
        world.heal()
        await world.buried()
        if not world.alive:
            world.start()


async def history(seed: int, root: Path, *, seconds: float = 90.0, recorded: int = 0) -> World:
    """Live through one history and judge it; ``recorded``: MiB of the flight recorder.

    Raises Violation with the story when an invariant was broken or the node did not converge.
    """
    rng = random.Random(f"{seed} chaos")
    api_on_node = random.Random(f"{seed} api clock").random() < 0.5
    world = World(seed, root, events=bool(seed % 2), recorded=recorded, api_on_node=api_on_node)
    world.start()
    await Chaos(world, rng).unleash(seconds)
    await world.converges(CONVERGES_WITHIN)
    await _ready(world)
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    world.history.check()
    return world


async def _ready(world: World) -> None:
    def not_ready() -> list[str]:
        node = world.registry.find("nodes", "", NODE) or {}
        conditions = (node.get("status") or {}).get("conditions") or ()
        ready = {c["type"]: c["status"] for c in conditions}.get("Ready")
        return [] if ready == "True" else [f"node is Ready={ready}"]

    await world.converges(60.0, not_ready)

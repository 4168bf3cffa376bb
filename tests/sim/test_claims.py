"""The whole agent with simulated DRA drivers: random histories, and a death at every call.

``KUBELETPY_SIM_SEED=n`` replays one seed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.sim.chaos import EMPTY_WITHIN
from tests.sim.claims import RECOVERS_WITHIN, Cluster, history, remains
from tests.sim.faults import changes, with_events
from tests.sim.history import Violation
from tests.sim.loop import run, seeds
from tests.sim.world import CLAIM_DRIVERS, World

RUNS = 6
MOST_INSTANTS = 150
QUIET = 200.0
"""Seconds within which all is as it should be after one death and no other fault."""


@pytest.mark.parametrize("seed", seeds(RUNS))
def test_history(seed: int, tmp_path: Path) -> None:
    """Odd seeds have a runtime with events, even ones have not."""
    run(history(seed, tmp_path))


def _matters(what: str) -> bool:
    """Whether a call may change something of a pod or of its claims."""
    others = ("nodes", "leases", "events", "resourceslices")
    return changes(what) and not any(word in what for word in others)


async def _one_death(root: Path, act: str, instant: int) -> bool:
    """A pod with claims starts or ends, with one death; whether the instant was reached."""
    world = World(instant, root, events=with_events(instant), claims=True)
    for driver in world.claim_drivers.values():
        driver.start()
    cluster = Cluster(world)
    died = False
    calls = 0

    def on_step(where: str, what: str, number: int) -> None:
        nonlocal died, calls
        calls += _matters(what)
        if calls >= instant and _matters(what):
            died, world.on_step = True, None
            world.history.note("world", f"kills the agent at {where} of {what}")
            world.die()

    claims = [cluster.claim(*CLAIM_DRIVERS), cluster.claim(CLAIM_DRIVERS[0])]
    world.start()
    await asyncio.sleep(5)
    if act == "end":
        cluster.use("a", claims)
        await world.converges(QUIET)
    world.on_step = on_step
    if act == "end":
        world.user.delete("a")
    else:
        cluster.use("a", claims)

    def still() -> list[str]:
        return remains(world) if act == "end" else world.problems()

    await world.converges(2 * QUIET, lambda: [] if died else still())
    world.on_step = None
    await world.buried()
    if died:
        await asyncio.sleep((0.0, 0.5, 5.0)[instant % 3])
        world.start()
    await world.converges(2 * QUIET, still)
    world.user.delete("a")
    await world.converges(EMPTY_WITHIN + RECOVERS_WITHIN, lambda: remains(world))
    await world.stop()
    world.history.check()
    return died


@pytest.mark.parametrize("act", ["start", "end"])
def test_a_death_at_every_instant(tmp_path: Path, act: str) -> None:
    """At each call that may change something, as it begins and as it ends."""
    deaths = 0
    for instant in range(1, MOST_INSTANTS):
        root = tmp_path / str(instant)
        root.mkdir()
        if not run(_one_death(root, act, instant)):
            break
        deaths += 1
    assert 10 <= deaths < MOST_INSTANTS - 2


def test_the_invariants_bite(tmp_path: Path) -> None:
    """A driver that forgets what it has prepared is noticed."""

    async def story() -> None:
        world = World(1, tmp_path, claims=True)
        for driver in world.claim_drivers.values():
            driver.start()
        cluster = Cluster(world)
        world.start()
        await asyncio.sleep(5)
        cluster.use("a", [cluster.claim(*CLAIM_DRIVERS)], "fail")
        await asyncio.sleep(5)
        for driver in world.claim_drivers.values():
            driver.prepared.clear()
        await asyncio.sleep(60)
        world.history.check()

    with pytest.raises(Violation, match="which is not prepared"):
        run(story())

"""The whole agent with simulated CSI drivers: random histories, and a death at every call.

``KUBELETPY_SIM_SEED=n`` replays one seed.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest

from kubeletpy.volumes.usage import VolumeMeter
from tests.sim.chaos import EMPTY_WITHIN
from tests.sim.csi_wire import mounts_of
from tests.sim.history import Violation
from tests.sim.loop import run
from tests.sim.storage_chaos import (
    RECOVERS_WITHIN,
    history,
    pod_with,
    problems,
    remains,
    set_out,
    storage_of,
)
from tests.sim.world import World
from tests.virtual_time import EPOCH

RUNS = 60
PARTS = 4
"""Tests that the instants are dealt out to, so that several processes can share them."""
MOST_INSTANTS = 400
QUIET = 300.0
"""Seconds within which all is as it should be after one death and no other fault."""


def _seeds() -> list[int]:
    one = os.environ.get("KUBELETPY_SIM_SEED")
    return [int(one)] if one else list(range(RUNS))


@pytest.mark.parametrize("seed", _seeds())
def test_history(seed: int, tmp_path: Path) -> None:
    """Odd seeds have a runtime with events, even ones have not."""
    run(history(seed, tmp_path))


def test_same_seed_gives_the_same_story(tmp_path: Path) -> None:
    stories = []
    for name in ("first", "second"):
        root = tmp_path / name
        root.mkdir()
        lines = run(history(7, root)).history.lines
        stories.append([line.replace(str(root), "") for line in lines])
    assert stories[0] == stories[1]


def _matters(what: str) -> bool:
    """Whether a call is about pods and their volumes at all."""
    return not any(word in what for word in ("leases", "events", "Status of", "services"))


async def _one_death(root: Path, act: str, instant: int) -> bool:
    """A pod starts, gets more room or ends, with one death; whether the instant was reached."""
    world = World(instant, root, events=bool(instant % 2), storage=True)
    died = False
    begun = 0

    def on_step(where: str, what: str, number: int) -> None:
        nonlocal died
        if number - begun >= instant and _matters(what):
            died, world.on_step = True, None
            world.history.note("world", f"kills the agent at {where} of {what}")
            world.die()

    with mounts_of(world.drivers, world.history):
        set_out(world)
        world.start()
        await asyncio.sleep(5)
        if act != "start":
            world.user.create(_pod())
            await world.converges(QUIET, lambda: problems(world))
        begun, world.on_step = world.steps, on_step
        match act:
            case "start":
                world.user.create(_pod())
            case "expand":
                storage_of(world).expand("stager-0", recovery=bool(instant % 3))
            case "end":
                world.user.delete("a")
        still = partial(remains if act == "end" else problems, world)
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


def _pod() -> dict[str, object]:
    return pod_with("a", ["stager-0", "plain-0"], inline=True)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("act", ["start", "expand", "end"])
def test_a_death_at_every_instant(tmp_path: Path, act: str, part: int) -> None:
    """Odd instants have a runtime with events, even ones have not."""
    deaths = 0
    for instant in range(1 + part, MOST_INSTANTS, PARTS):
        root = tmp_path / str(instant)
        root.mkdir()
        if not run(_one_death(root, act, instant)):
            break
        deaths += 1
    assert deaths >= 2, "the story is too short to be worth it"
    assert deaths < MOST_INSTANTS / PARTS - 1, "the story is longer than the instants tried"


# -- the invariants bite -------------------------------------------------------------------------


async def _living(root: Path) -> World:
    world = World(1, root, storage=True)
    set_out(world)
    world.start()
    world.user.create(_pod())
    await world.converges(QUIET, lambda: problems(world))
    return world


@pytest.mark.parametrize(
    ("method", "where", "said"),
    [
        ("NodeUnpublishVolume", "target", "unpublished under"),
        ("NodeUnstageVolume", "staging", "unstaged while published"),
        ("NodePublishVolume", "target", "published over"),
    ],
)
def test_what_must_never_be_is_seen(tmp_path: Path, method: str, where: str, said: str) -> None:
    async def story() -> None:
        from kubeletpy.remote.generated import csi_pb2 as csi

        world = await _living(tmp_path)
        driver = world.drivers["stager"]
        target = next(iter(driver.published))
        paths = {
            "target": {"target_path": target},
            "staging": {"staging_target_path": driver.staged["stager-0"]},
        }
        handle = "stager-0" if method != "NodePublishVolume" else "stager-1"
        request = getattr(csi, f"{method}Request")(volume_id=handle, **paths[where])
        await driver.ask(method, request)
        with pytest.raises(Violation, match=said):
            world.history.check()

    run(story())


def test_how_full_volumes_are_is_known_also_while_a_driver_hangs(tmp_path: Path) -> None:
    async def story() -> None:
        world = await _living(tmp_path)
        assert world.agent is not None
        meter = world.agent.room(VolumeMeter)

        def claims() -> dict[str, object]:
            of_pods = meter.of_pods().values()
            return {each.volume.name: each.volume.claim for of in of_pods for each in of}

        others = {"v-plain-0": ("default", "plain-0"), "plain-inline": None}
        await asyncio.sleep(1)
        assert claims() == {"v-stager-0": ("default", "stager-0"), **others}
        world.drivers["stager"].hang()
        await asyncio.sleep(300)
        assert claims() == others, "its deadline has passed, and it is not known any more"
        assert all(each.at > EPOCH + 200 for of in meter.of_pods().values() for each in of)
        world.drivers["stager"].heal()
        await asyncio.sleep(100)
        assert claims() == {"v-stager-0": ("default", "stager-0"), **others}

    run(story())


def test_data_that_was_deleted_is_seen(tmp_path: Path) -> None:
    async def story() -> None:
        world = await _living(tmp_path)
        target = next(iter(world.drivers["stager"].published))
        (Path(target) / "data").unlink()
        world.user.delete("a")
        await asyncio.sleep(60)
        with pytest.raises(Violation, match="was deleted"):
            world.history.check()

    run(story())

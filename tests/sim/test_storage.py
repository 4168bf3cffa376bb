"""The whole agent with simulated CSI drivers: random histories, and a death at every call.

``KUBELETPY_SIM_SEED=n`` replays one seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.errors import Unavailable
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.volumes.usage import VolumeMeter
from tests.kit.virtual_time import EPOCH
from tests.sim.chaos import EMPTY_WITHIN
from tests.sim.client import RuntimeClient
from tests.sim.faults import changes, with_events
from tests.sim.hash_seeds import printed
from tests.sim.history import Violation
from tests.sim.loop import run, seeds
from tests.sim.storage_chaos import (
    RECOVERS_WITHIN,
    damage_something,
    history,
    pod_with,
    problems,
    remains,
    set_out,
    storage_of,
)
from tests.sim.world import World

RUNS = 24
PARTS = 2
"""Tests that the instants are dealt out to, so that several processes can share them."""
MOST_INSTANTS = 150
QUIET = 300.0
"""Seconds within which all is as it should be after one death and no other fault."""


@pytest.mark.parametrize("seed", seeds(RUNS))
def test_history(seed: int, tmp_path: Path) -> None:
    """Odd seeds have a runtime with events, even ones have not."""
    run(history(seed, tmp_path))


def test_the_story_does_not_depend_on_hash_seeds(tmp_path: Path) -> None:
    """A seed that failed in one process fails in the next one too."""
    program = (
        "import sys; from pathlib import Path; from tests.sim.storage_chaos import history; "
        "from tests.sim.loop import run; "
        "lines = run(history(7, Path(sys.argv[1]))).history.lines; "
        "print('\\n'.join(lines).replace(sys.argv[1], ''))"
    )
    assert len(printed(program, ("0", "1"), tmp_path)) == 1


def _matters(what: str) -> bool:
    """Whether a call may change something of a pod or of its volumes."""
    return changes(what) and not any(word in what for word in ("leases", "events"))


def _is_of_a_driver(what: str) -> bool:
    return changes(what) and " of driver " in what


async def _one_death(root: Path, act: str, instant: int, story: Story) -> bool:
    """A pod starts, gets more room or ends, with one death; whether the instant was reached."""
    world = World(instant, root, events=with_events(instant), storage=True)
    died = False
    calls = 0

    def on_step(where: str, what: str, number: int) -> None:
        nonlocal died
        nonlocal calls
        calls += story.counts(what)
        if calls >= instant and story.counts(what):
            died, world.on_step = True, None
            world.history.note("world", f"kills the agent at {where} of {what}")
            world.die()

    with world.mounts.in_place():
        set_out(world)
        world.start()
        await asyncio.sleep(5)
        if act != "start":
            world.user.create(story.pod())
            await world.converges(QUIET, lambda: problems(world))
        world.on_step = on_step
        match act:
            case "start":
                world.user.create(story.pod())
            case "expand":
                storage_of(world).expand(story.grows, recovery=bool(instant % 3))
            case "end":
                world.user.delete("a")
        still = partial(remains if act == "end" else problems, world)
        await world.converges(2 * QUIET, lambda: [] if died else still())
        world.on_step = None
        await world.buried()
        if died:
            story.worse(world, instant)
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


def _pod_of_all_kinds() -> dict[str, object]:
    claims = ["stager-sole", "stager-block", "plain-block"]
    return pod_with("a", claims, ephemeral=["plain"], parts=["stager-sole"])


def _nothing_worse(world: World, instant: int) -> None:
    pass


def _worse(world: World, instant: int) -> None:
    """Reboot, or damage a file that identifies a volume, after every other death."""
    if instant % 4 == 1:
        world.reboot()
        for driver in world.drivers.values():
            driver.start()
    elif instant % 4 == 3:
        damage_something(world, random.Random(instant))


@dataclass(frozen=True, slots=True)
class Story:
    """Circumstances of a death, and the calls at which it comes."""

    pod: Callable[[], dict[str, object]]
    grows: str
    counts: Callable[[str], bool]
    worse: Callable[[World, int], None] = _nothing_worse


MOUNTED = Story(_pod, "stager-0", _matters)
ALL_KINDS = Story(_pod_of_all_kinds, "stager-block", _is_of_a_driver, _worse)


def _deaths(tmp_path: Path, act: str, part: int, parts: int, story: Story) -> None:
    deaths = 0
    for instant in range(1 + part, MOST_INSTANTS, parts):
        root = tmp_path / str(instant)
        root.mkdir()
        if not run(_one_death(root, act, instant, story)):
            break
        deaths += 1
    assert deaths >= 2, "the story is too short to be worth it"
    assert deaths < MOST_INSTANTS / parts - 1, "the story is longer than the instants tried"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("act", ["start", "expand", "end"])
def test_a_death_at_every_instant(tmp_path: Path, act: str, part: int) -> None:
    """At each call that may change something, as it begins and as it ends."""
    _deaths(tmp_path, act, part, PARTS, MOUNTED)


@pytest.mark.parametrize("act", ["start", "expand", "end"])
def test_a_death_at_every_call_of_a_driver(tmp_path: Path, act: str) -> None:
    """The pod has devices, a volume for itself, one that lives as long as it, and a subPath."""
    _deaths(tmp_path, act, 0, 1, ALL_KINDS)


def test_a_device_that_is_published_after_the_death_of_the_agent_is_taken_down(
    tmp_path: Path,
) -> None:
    """Nothing but its own link shows that the pod may have it: the driver has made nothing yet."""

    async def story() -> None:
        world = World(1, tmp_path, storage=True)
        driver = world.drivers["plain"]
        with world.mounts.in_place():
            set_out(world)
            world.start()
            await asyncio.sleep(5)
            driver.hang()
            world.user.create(pod_with("a", ["plain-block"]))
            await asyncio.sleep(5)
            await world.kill()
            world.user.delete("a", 0)
            driver.heal()
            await asyncio.sleep(5)
            assert driver.published, "the call has its effect after all"
            world.start()
            await world.converges(EMPTY_WITHIN, lambda: remains(world))

    run(story())


@pytest.mark.parametrize("name", ["plain", "stager"])
def test_a_device_published_after_its_pod_was_given_up_is_taken_down(
    tmp_path: Path, name: str
) -> None:
    """The volume could not be identified, so that its driver got no call."""

    async def story() -> None:
        world = World(1, tmp_path, storage=True)
        driver, claim = world.drivers[name], f"{name}-block"
        with world.mounts.in_place():
            set_out(world)
            world.start()
            world.user.create(pod_with("a", [claim]))
            await world.converges(QUIET, lambda: problems(world))
            driver.hang()
            world.user.create(pod_with("b", [claim]))
            await asyncio.sleep(5)
            await world.kill()
            for data in (world.root / "kubelet").rglob("data/vol_data.json"):
                world.mounts.damage(data, torn=False)
            world.user.delete("b", 0)
            world.start()
            await asyncio.sleep(60)
            links = (world.root / "kubelet" / "pods").glob("*/volumeDevices/*/*")
            assert len(list(links)) == 1, "the first pod's"
            driver.heal()
            await asyncio.sleep(5)
            assert len(driver.published) == 2, "the call has its effect after all"
            world.user.delete("a")
            await world.converges(EMPTY_WITHIN, lambda: remains(world))
            await world.stop()
            world.history.check()

    run(story())


def test_a_deleted_pod_whose_containers_cannot_be_read_keeps_its_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted by force while the agent was dead, and its containers go on."""

    async def no_answer(*args: object) -> NoReturn:
        await asyncio.sleep(0.01)
        raise Unavailable("ContainerStatus", "injected")

    async def story() -> None:
        world = await _living(tmp_path)
        await world.kill()
        world.user.delete("a", 0)
        with monkeypatch.context() as patch:
            patch.setattr(RuntimeClient, "container_status", no_answer)
            world.start()
            await asyncio.sleep(60)
        assert len(world.runtime.running()) == 1
        assert not [
            call for driver in world.drivers.values() for call in driver.calls if "Un" in call
        ]
        world.history.check()
        await world.converges(EMPTY_WITHIN, lambda: remains(world))

    run(story())


# -- the invariants bite -------------------------------------------------------------------------


async def _living(root: Path) -> World:
    world = World(1, root, storage=True)
    set_out(world)
    world.start()
    world.user.create(_pod())
    await world.converges(QUIET, lambda: problems(world))
    return world


@pytest.mark.parametrize(
    ("method", "where", "stated"),
    [
        ("NodeUnpublishVolume", "target", "unpublished under"),
        ("NodeUnstageVolume", "staging", "unstaged while published"),
        ("NodePublishVolume", "target", "published over"),
    ],
)
def test_forbidden_driver_calls_are_violations(
    tmp_path: Path, method: str, where: str, stated: str
) -> None:
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
        await driver.answer_call(method, request)
        with pytest.raises(Violation, match=stated):
            world.history.check()

    run(story())


def test_usage_of_volumes_is_measured_while_a_driver_hangs(tmp_path: Path) -> None:
    async def story() -> None:
        world = await _living(tmp_path)
        assert world.agent is not None
        meter = world.agent.component(VolumeMeter)

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


def test_the_health_of_storage_is_in_the_csi_node_and_survives_the_agent(tmp_path: Path) -> None:
    answer = csi.NodeGetStorageHealthResponse
    broken = answer.StorageBackendHealth(
        status=csi.StorageHealthErrorType.STORAGE_UNREACHABLE, reason="NoPath"
    )

    def reported(world: World) -> dict[str, JSON]:
        assert world.storage is not None
        found = world.storage.csi_node().get("status") or {}
        return {each["name"]: each for each in found.get("storageHealth") or ()}

    async def story() -> None:
        gates = {"CSIVolumeHealth": True}
        world = World(1, tmp_path, storage=True, settings={"featureGates": gates})
        sick, other = world.drivers["stager"], world.drivers["plain"]
        sick.storage_health = answer(backend_health=[broken])
        other.storage_health = answer()
        with world.mounts.in_place():
            set_out(world)
            world.start()
            await world.converges(QUIET, lambda: [] if reported(world) else ["no health"])
            before = reported(world)
            (condition,) = before["stager"]["healthConditions"]
            assert (condition["status"], condition["reason"]) == ("StorageUnreachable", "NoPath")
            await world.kill()
            world.start()
            await asyncio.sleep(200)
            assert reported(world) == before, "the same answer of the same driver"
            sick.die(clean=True)
            await asyncio.sleep(200)
            assert reported(world) == before, "a driver that has exited reports nothing"
            sick.storage_health = answer()
            sick.start()
            await world.converges(QUIET, lambda: list(reported(world)))

    run(story())


@pytest.mark.parametrize("driver", ["plain", "stager"])
def test_the_health_of_a_volume_is_shown_and_survives_the_agent(
    driver: str, tmp_path: Path
) -> None:
    entry = csi.VolumeHealth.VolumeHealthEntry
    slow = entry(status=csi.VolumeHealthErrorType.DEGRADED, reason="Slow", message="one replica")

    def reported(world: World) -> JSON:
        found: JSON = (world.user.get("a") or {}).get("status") or {}
        return {each["name"]: each for each in found.get("volumeHealth") or ()}

    async def story() -> None:
        gates = {"CSIVolumeHealth": True}
        world = World(1, tmp_path, storage=True, settings={"featureGates": gates})
        world.registry.feature_gates = frozenset(gates)
        sick = world.drivers[driver]
        sick.health = csi.VolumeHealth(health_statuses=[slow])
        claims = [f"{driver}-sole", f"{driver}-block"]
        with world.mounts.in_place():
            set_out(world)
            world.start()
            world.user.create(pod_with("a", claims))
            await world.converges(QUIET, lambda: [] if len(reported(world)) == 2 else ["no health"])
            before = reported(world)
            conditions = before[f"v-{claims[0]}"]["healthConditions"]
            assert conditions == [
                {"status": "Degraded", "reason": "Slow", "message": "one replica"}
            ]
            await world.kill()
            world.start()
            await asyncio.sleep(200)
            assert reported(world) == before, "the same answer of the same driver"
            sick.health = csi.VolumeHealth()
            await world.converges(
                QUIET, lambda: [k for k, v in reported(world).items() if v.get("healthConditions")]
            )
            assert len(reported(world)) == 2
            world.user.delete("a")
            await world.converges(EMPTY_WITHIN, lambda: remains(world))

    run(story())

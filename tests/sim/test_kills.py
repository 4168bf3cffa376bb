"""The agent is killed at every call that changes a pod in its start, life and end, and restarted.

Each kill comes before a call reaches the runtime or the API, or between its effect and its answer.
All that only the agent had in memory is lost then.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.sim.faults import changes, with_events
from tests.sim.invariants import entries
from tests.sim.loop import call_later, run
from tests.sim.records import Container, Sandbox
from tests.sim.user import container, pod, resources, sidecar
from tests.sim.world import World

CHANGES = ("RunPodSandbox", "CreateContainer", "StartContainer")
PARTS = 2
"""Tests that the instants are dealt out to, so that several processes can share them."""
MOST_INSTANTS = 150
EMPTY_WITHIN = 700.0

Act = Callable[[World], Awaitable[None]]


def _start() -> JSON:
    init = [container("i", "done"), sidecar("s"), container("j", "done")]
    return pod("a", [container("c", "run"), container("d", "slowstop")], init=init)


def _job() -> JSON:
    return pod("a", [container("c", "done"), container("d", "fail")], restart="Never")


async def _create(world: World) -> None:
    world.user.create(_start())


async def _create_job(world: World) -> None:
    world.user.create(_job())


async def _delete(world: World) -> None:
    world.user.create(_start())
    await world.converges(30)
    world.user.delete("a")


async def _update(world: World) -> None:
    world.user.create(_start())
    await world.converges(30)
    world.user.set_image("a", 1, "local.test/run143:1")


async def _lose_sandbox(world: World) -> None:
    world.user.create(pod("a", [container("c", "run"), container("d", "run")]))
    await world.converges(30)
    for sandbox in list(world.runtime.sandboxes.values()):
        world.runtime.kill_sandbox(sandbox)


def _sized(*policies: JSON) -> JSON:
    containers = [container("c", "run", resources=resources("100m")), container("d", "run")]
    if policies:
        containers[0]["resizePolicy"] = list(policies)
    return pod("a", containers)


async def _resize(world: World) -> None:
    world.user.create(_sized())
    await world.converges(30)
    world.user.resize("a", 0, resources("200m", "96Mi"))


async def _resize_with_restart(world: World) -> None:
    world.user.create(_sized({"resourceName": "memory", "restartPolicy": "RestartContainer"}))
    await world.converges(30)
    world.user.resize("a", 0, resources("200m", "96Mi"))


ACTS: dict[str, tuple[Act, bool]] = {
    "start": (_create, False),
    "job": (_create_job, False),
    "update": (_update, True),
    "stop": (_delete, True),
    "sandbox": (_lose_sandbox, True),
    "resize": (_resize, True),
    "resize_restart": (_resize_with_restart, True),
}
"""How each act changes the pod; whether instants are counted only after the pod ran."""


async def _one_death(root: Path, act: str, instant: int) -> bool:
    """Live through one story with one death; whether the instant was reached at all."""
    world = World(instant, root, events=with_events(instant))
    world.start()
    perform, only_after = ACTS[act]
    died = False
    calls = 0

    def on_step(where: str, what: str, number: int) -> None:
        nonlocal died, calls
        calls += _matters(what)
        if calls >= instant and _matters(what):
            died, world.on_step = True, None
            world.history.note("world", f"kills the agent at {where} of {what}")
            world.die()

    if only_after:
        await perform(world)
    world.on_step = on_step
    if not only_after:
        await perform(world)
    await world.converges(200, lambda: [] if died else world.problems())
    world.on_step = None
    await world.buried()
    if died:
        await asyncio.sleep((0.0, 0.5, 5.0)[instant % 3])
        world.start()
    await world.converges(200)
    _restarted_nothing(world, act)
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    world.history.check()
    return died


def _matters(what: str) -> bool:
    """Whether a call may change something of a pod."""
    return changes(what) and not any(word in what for word in ("nodes", "leases", "events"))


def _restarted_nothing(world: World, act: str) -> None:
    """A pod that was only started or resized has no container that is not its first."""
    if act not in ("start", "job", "resize", "resize_restart"):
        return
    for obj in world.user.pods():
        for name, entry in entries(obj.get("status") or {}).items():
            ran = [
                line for line in world.history.lines if " start " in line and f" {name}#" in line
            ]
            desired = 2 if act == "resize_restart" and name == "c" else 1
            assert len(ran) == desired, f"{name}: {ran}, shown {entry['restartCount']}"


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("act", ACTS)
def test_a_death_at_every_instant(tmp_path: Path, act: str, part: int) -> None:
    """At each call that may change something, as it begins and as it ends."""
    deaths = 0
    for instant in range(1 + part, MOST_INSTANTS, PARTS):
        root = tmp_path / str(instant)
        root.mkdir()
        if not run(_one_death(root, act, instant)):
            break
        deaths += 1
    assert deaths >= 2, "the story is too short to be worth it"
    assert deaths < MOST_INSTANTS / PARTS - 1, "the story is longer than the instants tried"


async def _death_in_a_change(root: Path, seed: int, restart: str) -> tuple[int, int]:
    """Starts a pod while agents die in its changes; abandoned starts, and ends shown."""
    world = World(seed, root, events=bool(seed % 2))
    rng = world.rng("deaths")
    inits = [container("i", "done"), sidecar("s")]
    world.user.create(
        pod("a", [container("c", "run"), container("d", "run")], init=inits, restart=restart)
    )
    deaths = 6

    def on_step(where: str, what: str, number: int) -> None:
        nonlocal deaths
        if where == "call" and what in CHANGES and deaths and rng.random() < 0.5:
            deaths -= 1
            world.on_step = None
            call_later(rng.uniform(0.0, 0.08), world.die)

    world.start()
    while deaths:
        world.on_step = on_step
        await world.converges(30, lambda: [] if not world.alive else world.problems())
        if world.alive:
            break
        await world.buried()
        await asyncio.sleep(rng.choice((0.0, 0.05, 2.0)))
        world.start()
    world.on_step = None
    await world.converges(300)
    (obj,) = world.user.pods()
    status = obj["status"]
    assert status["phase"] == "Running", status
    counts = {name: entry["restartCount"] for name, entry in entries(status).items()}
    assert set(counts.values()) == {0}, counts
    assert all(not entry.get("lastState") for entry in entries(status).values())
    abandoned = len(world.truth.pods[obj["metadata"]["uid"]].abandoned)
    world.user.delete("a")
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    world.history.check()
    return abandoned, 6 - deaths


@pytest.mark.parametrize("restart", ["Never", "OnFailure", "Always"])
def test_a_start_that_died_with_the_agent_counts_for_nothing(tmp_path: Path, restart: str) -> None:
    abandoned = deaths = 0
    for seed in range(12):
        root = tmp_path / str(seed)
        root.mkdir()
        found, died = run(_death_in_a_change(root, seed, restart))
        abandoned += found
        deaths += died
    assert deaths > 24
    assert abandoned > 6, "too few starts were canceled to show anything"


async def _crash_loop_over_lives(root: Path) -> list[float]:
    """The times of a container's starts, with an agent that is killed each 35 seconds."""
    world = World(1, root, events=True)
    started: list[float] = []

    def note(what: str, whom: object) -> None:
        if what == "start":
            started.append(world.loop.time())

    world.runtime.observers.append(note)
    world.user.create(pod("a", [container("c", "fail")]))
    for _ in range(16):
        world.start()
        await asyncio.sleep(35.0)
        await world.kill()
    world.history.check()
    return started


def test_a_crash_loop_keeps_its_delay_over_agents(tmp_path: Path) -> None:
    started = run(_crash_loop_over_lives(tmp_path))
    gaps = [later - earlier for earlier, later in itertools.pairwise(started)]
    waited = [gap - 0.5 for gap in gaps]  # it runs for half a second
    assert len(gaps) == 6, gaps
    for gap, delay in zip(waited, [0, 10, 20, 40, 80, 160], strict=True):
        assert delay - 0.01 < gap < delay + 5, gaps


async def _killed_while_a_pod_ends(root: Path, seed: int) -> float:
    """A pod that ignores SIGTERM is deleted, and agents die meanwhile: seconds until its end."""
    world = World(seed, root, events=bool(seed % 2))
    rng = world.rng("deaths")
    hook = {"preStop": {"sleep": {"seconds": 8}}}
    world.user.create(pod("a", [container("c", "stubborn", lifecycle=hook)], grace=30))
    world.start()
    await world.converges(30)
    (victim,) = world.runtime.running()
    world.user.delete("a", 30)
    requested = world.loop.time()
    for _ in range(3):
        await asyncio.sleep(rng.uniform(1.0, 7.0))
        await world.kill()
        await asyncio.sleep(rng.uniform(0.0, 2.0))
        world.start()
    await victim.ended.wait()
    took = world.loop.time() - requested
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    world.history.check()
    return took


def test_a_grace_period_is_one_over_all_lives(tmp_path: Path) -> None:
    for seed in range(6):
        root = tmp_path / str(seed)
        root.mkdir()
        took = run(_killed_while_a_pod_ends(root, seed))
        assert 29.0 < took < 33.0, f"seed {seed}"


async def _records_lost(root: Path, restart: str) -> dict[str, int]:
    """A container ends with 0, its record vanishes with the agent; how often it ran, by name."""
    world = World(3, root, events=True)
    ran: Counter[str] = Counter()

    def note(what: str, whom: Container | Sandbox) -> None:
        if what == "start" and isinstance(whom, Container):
            ran[whom.name] += 1

    world.runtime.observers.append(note)
    world.user.create(pod("a", [container("c", "done"), container("d", "run")], restart=restart))
    world.start()
    await world.converges(60)
    await world.kill()
    for each in list(world.runtime.containers.values()):
        if each.name == "c":
            await world.runtime.remove_container(each.id)
    world.start()
    await asyncio.sleep(90.0)
    (obj,) = world.user.pods()
    entry = entries(obj["status"])["c"]
    assert entry["state"]["terminated"]["exitCode"] == 0, entry
    assert entry["restartCount"] == 0
    world.history.check()
    return ran


@pytest.mark.parametrize("restart", ["Never", "OnFailure"])
def test_a_pod_that_the_api_shows_as_done_does_not_run_again(tmp_path: Path, restart: str) -> None:
    assert run(_records_lost(tmp_path, restart)) == {"c": 1, "d": 1}

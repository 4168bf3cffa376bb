"""Random histories of a node whose memory, disk, inodes and tasks pods eat, with the agent killed.

Some seeds are always the same, as many are fresh. ``KUBELETPY_SIM_SEED=n`` replays one seed;
``./test.sh sim --runs n`` lives through n fresh ones and kills the agent at every instant.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.node.eviction.decide import Signal
from kubeletpy_up.errors import ApiError
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.chaos import CONVERGES_WITHIN, EMPTY_WITHIN, Chaos
from tests.sim.loop import run, spawn
from tests.sim.pressure import (
    DISK,
    INODES,
    LEAST,
    MEMORY,
    MI,
    SOFT_MEMORY,
    TASKS,
    VOLUME,
    Appetite,
    Liar,
)
from tests.sim.pressure_judge import CHECK_S, Wish
from tests.sim.test_histories import seeds
from tests.sim.test_scenarios import manifest
from tests.sim.user import container, pod
from tests.sim.world import World

RUNS = 10
ONCE_BROKEN = (68, 28351650701, 101020866809, 27515843806, 29547138217, 14000055)
"""Seeds that showed a fault of the agent, the last two a fault of the judge."""
TICK_S = 0.1
STATIC_UID = "5747a71c0000400080000000000000aa"
FRESH = int(os.environ.get("KUBELETPY_SIM_FRESH", "0"))
"""The first of the seeds that nobody has run."""
DESIRED = int(os.environ.get("KUBELETPY_SIM_RUNS", "0"))
"""The number of fresh seeds; 0: as many as fixed ones."""
CLASSES = {"low": 0, "middle": 100, "high": 1000}


class HungryUser:
    """Makes pods that take more and more, and takes some away again."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._made = 0
        for name, value in CLASSES.items():
            world.registry.create(
                ADMIN,
                "priorityclasses.scheduling.k8s.io",
                {
                    "apiVersion": "scheduling.k8s.io/v1",
                    "kind": "PriorityClass",
                    "metadata": {"name": name},
                    "value": value,
                },
            )

    def act(self, max_pods: int) -> None:
        """Do one thing."""
        pods = self._world.user.pods()
        if len(pods) < max_pods and self._rng.random() < 0.75:
            self.create()
        elif pods:
            chosen = self._rng.choice(pods)["metadata"]["name"]
            self._world.user.delete(chosen, self._rng.choice((None, None, 0, 2)))

    def create(self) -> None:
        """Make a pod."""
        rng, world = self._rng, self._world
        assert world.stores is not None and world.judge is not None
        self._made += 1
        name = f"pod{self._made}"
        chosen = rng.choice(list(CLASSES))
        wants = rng.choice((0, 0, 500 * MI, 2000 * MI))
        world.stores.appetites[name] = appetite(rng)
        world.judge.wishes[name] = Wish(CLASSES[chosen], wants)
        what, host = rng.choice((("run", scripts.LOCAL), ("stubborn", scripts.REMOTE)))
        if rng.random() < 0.2:
            what = rng.choice(("doneslow", "failslow"))
        made = container("c", what, host)
        made["volumeMounts"] = [{"name": VOLUME, "mountPath": "/v"}]
        if wants:
            made["resources"] = {"requests": {"memory": str(wants)}}
        spec: JSON = {"priorityClassName": chosen, "volumes": [{"name": VOLUME, "emptyDir": {}}]}
        try:
            world.user.create(pod(name, [made], restart=rng.choice(("Always", "Never")), **spec))
        except ApiError as refusal:
            world.history.note("user", f"refused: {refusal.message[:100]}")


def appetite(rng: random.Random) -> Appetite:
    """Often modest, sometimes without measure."""

    def share(whole: float, least: float = 0.0) -> tuple[float, float]:
        start = least + whole * rng.choice((0.001, 0.01, 0.1, 0.2, 0.4))
        return start, whole * rng.choice((0.0, 0.0, 0.0, 0.002, 0.02, 0.1))

    kind = rng.randrange(5)
    return Appetite(
        memory=share(MEMORY) if kind in (0, 4) else (10 * MI, 0),
        layer=share(DISK) if kind == 1 else (MI, 0),
        volume=share(DISK) if kind in (2, 4) else (0, 0),
        inodes=share(INODES) if kind == 2 else (0, 0),
        tasks=share(TASKS, 1) if kind == 3 else (2, 0),
    )


class ShortOfAll(Chaos):
    """Chaos with hungry pods."""

    def user(self) -> HungryUser:  # type: ignore[override]
        return HungryUser(self._world, self._world.rng("user"))


async def history(seed: int, root: Path, *, seconds: float = 150.0) -> World:
    """Live through one history: every third calm, every third with lies, every third with chaos."""
    world = World(seed, root, events=bool(seed % 2), static=True, pressure=True)
    assert world.stores is not None and world.judge is not None and world.static_dir is not None
    # with a uid: that of a manifest without one is made of its path, and would be another each time
    static = manifest("web").replace("{name: web}", f"{{name: web, uid: {STATIC_UID}}}")
    (world.static_dir / "web.yaml").write_text(static)
    world.stores.appetites["web-sim-node"] = Appetite(
        memory=(MEMORY * 0.3, 0), layer=(DISK * 0.3, 0)
    )
    ticking = spawn(_tick(world))
    world.start()
    kind = seed % 3
    if kind == 1:
        world.stores.lies = Liar(world.rng("liar"), 0.3)
        world.judge.unseen = 3 * CHECK_S
    if kind == 2:
        world.judge.calm = False
        await ShortOfAll(world, random.Random(f"{seed} chaos")).unleash(seconds)
    else:
        user, rng = HungryUser(world, world.rng("user")), world.rng("pace")
        end = world.loop.time() + seconds
        while world.loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / 4))
            user.act(max_pods=6)
    world.stores.lies = lambda seen: seen
    world.stores.appetites.clear()
    await world.converges(CONVERGES_WITHIN, lambda: _unsettled(world))
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    (world.static_dir / "web.yaml").unlink()
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    ticking.cancel()
    world.history.check()
    return world


def _unsettled(world: World) -> list[str]:
    assert world.judge is not None and world.stores is not None
    left = {signal.value: round(left) for signal, left in world.stores.left().items()}
    conditions = world.judge.not_well()
    return world.problems() + conditions + ([f"left: {left}"] if conditions else [])


async def _tick(world: World) -> None:
    assert world.stores is not None and world.judge is not None
    while True:
        world.judge.tick()
        world.stores.kill_the_greedy()
        await asyncio.sleep(TICK_S)


@pytest.mark.parametrize("seed", seeds(RUNS, ONCE_BROKEN, fresh=RUNS))
def test_history(seed: int, tmp_path: Path) -> None:
    run(history(seed, tmp_path))


def test_pods_are_evicted_for_every_signal(tmp_path: Path) -> None:
    """Histories that evict no pod for some signal would test little."""
    seen: set[str] = set()
    for seed in (4, 11):
        root = tmp_path / str(seed)
        root.mkdir()
        world = run(history(seed, root))
        seen |= {story.split(" ", 1)[1] for story in world.judge.stories}
    text = " ".join(seen)
    for signal in ("memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available"):
        assert signal in text, text


def test_the_disk_is_saved_while_the_api_is_down(tmp_path: Path) -> None:
    """One pod is evicted, not one after the other; the API learns it and its exit code later."""

    async def scenario() -> None:
        world = World(7, tmp_path, pressure=True)
        assert world.stores is not None and world.judge is not None
        ticking = spawn(_tick(world))
        world.start()
        world.stores.appetites["eater"] = Appetite(layer=(DISK * 0.2, DISK * 0.05))
        for name in ("calm", "eater"):
            world.user.create(hungry(name))
        await world.converges(30)
        world.api_down()
        await asyncio.sleep(120)
        (story,) = world.judge.stories
        assert story.startswith("eater")
        assert world.stores.left()[Signal.NODEFS] > DISK * 0.85  # what is left are images
        world.api_up()
        await world.converges(120, lambda: _eaten(world))
        (eater,) = (world.user.get("eater") or {})["status"]["containerStatuses"]
        ended = eater["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        await world.stop()
        ticking.cancel()
        world.history.check()

    run(scenario())


# -- killed at every step ------------------------------------------------------------------------

MOST_INSTANTS = 600
STRIDE = 1 if DESIRED else 48
"""Each 48th instant, others each time; with KUBELETPY_SIM_RUNS all of them."""
EATERS = {
    "memory": Appetite(memory=(MEMORY * 0.5, MEMORY * 0.2)),
    "disk": Appetite(layer=(DISK * 0.5, DISK * 0.2)),
    "volume": Appetite(volume=(DISK * 0.5, DISK * 0.2)),
    "tasks": Appetite(tasks=(TASKS * 0.5, TASKS * 0.2)),
    "soft": Appetite(memory=(MEMORY - (SOFT_MEMORY + LEAST[Signal.MEMORY]) / 2, 0)),
}


async def _one_death(root: Path, eats: str, instant: int) -> bool:
    """A pod eats what there is, and the agent dies once; whether the instant was reached at all."""
    world = World(instant, root, events=bool(instant % 2), pressure=True)
    assert world.stores is not None and world.judge is not None
    ticking = spawn(_tick(world))
    world.start()
    world.user.create(hungry("calm"))
    await world.converges(30)
    world.stores.appetites["eater"] = EATERS[eats]
    died = False
    begun = world.steps

    def on_step(where: str, what: str, number: int) -> None:
        nonlocal died
        if number - begun >= instant and not any(each in what for each in ("leases", "services")):
            died, world.on_step = True, None
            world.history.note("world", f"kills the agent at {where} of {what}")
            world.die()

    world.user.create(hungry("eater"))
    world.on_step = on_step
    await world.converges(300, lambda: [] if died else _eaten(world))
    world.on_step = None
    await world.buried()
    if died:
        await asyncio.sleep((0.0, 0.5, 5.0)[instant % 3])
        world.start()
    await world.converges(300, lambda: _eaten(world))
    assert all(story.endswith(" soft") == (eats == "soft") for story in world.judge.stories)
    assert all(story.startswith("eater") for story in world.judge.stories), world.judge.stories
    (calm,) = [
        c for c in world.runtime.containers.values() if c.sandbox.config.metadata.name == "calm"
    ]
    assert (calm.attempt, calm.running) == (0, True)
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    ticking.cancel()
    world.history.check()
    return died


def hungry(name: str) -> JSON:
    """A pod that may write to a volume."""
    made = container("c", "run", volumeMounts=[{"name": VOLUME, "mountPath": "/v"}])
    return pod(name, [made], volumes=[{"name": VOLUME, "emptyDir": {}}])


def _eaten(world: World) -> list[str]:
    status = (world.user.get("eater") or {}).get("status") or {}
    found = [] if status.get("reason") == "Evicted" else ["the eater is not evicted"]
    return found + _unsettled(world)


@pytest.mark.parametrize("eats", EATERS)
def test_a_death_at_any_instant(tmp_path: Path, eats: str) -> None:
    """Odd instants have a runtime with events, even ones have not."""
    deaths = 0
    begin = 1 + random.Random(f"{eats} {FRESH}").randrange(STRIDE)
    for instant in range(begin, MOST_INSTANTS, STRIDE):
        root = tmp_path / str(instant)
        root.mkdir()
        if not run(_one_death(root, eats, instant)):
            break
        deaths += 1
    assert deaths >= max(2, 15 // STRIDE), "the story is too short to be worth it"
    assert deaths < MOST_INSTANTS / STRIDE - 1, "the story is longer than the instants tried"

"""Random histories of pods with volumes: drivers that are slow, fail, hang, die and come again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.api.types import JSON
from tests.sim.api import NODE
from tests.sim.chaos import CONVERGES_WITHIN, EMPTY_WITHIN, Chaos
from tests.sim.csi_drivers import SimDriver
from tests.sim.csi_wire import mounts_of
from tests.sim.storage import Storage
from tests.sim.user import container, pod
from tests.sim.world import DRIVERS, World

CLAIMS = tuple(f"{driver}-{number}" for driver in DRIVERS for number in range(3))
INLINE_DRIVER = "plain"
RECOVERS_WITHIN = 300.0
"""Beyond what a pod without volumes needs: calls that hung (120) and operations that back off
(122)."""


def storage_of(world: World) -> Storage:
    """The storage of a world that has some."""
    assert world.storage is not None
    return world.storage


def pod_with(name: str, claims: Sequence[str], *, inline: bool = False, what: str = "run") -> JSON:
    """A pod whose one container mounts these claims."""
    volumes: list[JSON] = [
        {"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims
    ]
    if inline:
        volumes.append({"name": f"{INLINE_DRIVER}-inline", "csi": {"driver": INLINE_DRIVER}})
    mounts = [{"name": v["name"], "mountPath": f"/mnt/{v['name']}"} for v in volumes]
    containers = [container("c0", what, volumeMounts=mounts)]
    return pod(name, containers, grace=2, volumes=volumes)


def set_out(world: World) -> None:
    """Make the claims, and start the drivers."""
    for claim in CLAIMS:
        storage_of(world).add_claim(claim, claim.partition("-")[0])
    for driver in world.drivers.values():
        driver.start()


class StorageChaos(Chaos):
    """What goes wrong with storage too."""

    async def unleash(self, seconds: float) -> None:
        """Faults, outages, deaths and users' deeds for so long."""
        self._set_rates()
        end = self._world.loop.time() + seconds
        made = 0
        while self._world.loop.time() < end:
            await asyncio.sleep(self._rng.expovariate(1 / 2.5))
            point = self._rng.random()
            if point < 0.5:
                made += 1
                self._use(made)
            elif point < 0.7:
                self._upset(self._rng.choice(list(self._world.drivers.values())))
            else:
                await self._mishap()
        await self._revive()

    def _set_rates(self) -> None:
        super()._set_rates()
        for driver in self._world.drivers.values():
            driver.faults = self._rng.choice((0.0, 0.0, 0.2, 0.6))
            driver.slow = self._rng.choice((0.0, 0.05, 0.3))

    def _use(self, number: int) -> None:
        world, rng = self._world, self._rng
        pods = world.user.pods()
        if len(pods) < 4 and (not pods or rng.random() < 0.5):
            claims = rng.sample(CLAIMS, rng.choice((0, 1, 1, 2, 3)))
            inline = not claims or rng.random() < 0.2
            what = rng.choice(("run", "run", "stubborn", "slowstop", "failslow"))
            world.user.create(pod_with(f"pod{number}", claims, inline=inline, what=what))
        elif rng.random() < 0.3:
            storage_of(world).expand(rng.choice(CLAIMS), recovery=rng.random() < 0.5)
        else:
            name = rng.choice(pods)["metadata"]["name"]
            world.user.delete(name, rng.choice((None, None, None, 0, 1)))

    def _upset(self, driver: SimDriver) -> None:
        rng = self._rng
        point = rng.random()
        if not driver.up:
            driver.start()
        elif point < 0.4:
            driver.die(clean=rng.random() < 0.6)
        elif point < 0.6:
            driver.hang()
        elif point < 0.8:
            driver._healthy.set()
        else:
            driver.faults = rng.choice((0.0, 0.3, 1.0))


def problems(world: World) -> list[str]:
    """What is not as it should be in the long run."""
    used = {
        volume["persistentVolumeClaim"]["claimName"]
        for obj in world.user.pods()
        for volume in obj["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    }
    return [*world.problems(), *storage_of(world).unexpanded(used)]


def remains(world: World) -> list[str]:
    """What is left when all pods are gone."""
    found = world.remains()
    for driver in world.drivers.values():
        found += driver.left()
    found += [f"attachment {name}" for name in storage_of(world).attachments()]
    kubelet = world.root / "kubelet"
    found += [str(path) for path in (kubelet / "plugins").rglob("*") if _extra(path)]
    found += [str(path) for path in (kubelet / "pods").glob("*/volumes/*/*")]
    node = world.registry.find("nodes", "", NODE) or {}
    if in_use := (node.get("status") or {}).get("volumesInUse"):
        found.append(f"volumesInUse {in_use}")
    return found


def _extra(path: Path) -> bool:
    """Below a driver's directory."""
    parts = path.parts
    return "csi" in parts and len(parts) - parts.index("csi") > 2


async def history(seed: int, root: Path, *, seconds: float = 120.0) -> World:
    """Live through one history and judge it.

    Raises Violation with the story when an invariant was broken or the node did not converge.
    """
    rng = random.Random(f"{seed} storage chaos")
    world = World(seed, root, events=bool(seed % 2), storage=True)
    with mounts_of(world.drivers, world.history):
        set_out(world)
        world.start()
        await StorageChaos(world, rng).unleash(seconds)
        await world.converges(CONVERGES_WITHIN + RECOVERS_WITHIN, lambda: problems(world))
        for obj in world.user.pods():
            world.user.delete(obj["metadata"]["name"])
        await world.converges(EMPTY_WITHIN + RECOVERS_WITHIN, lambda: remains(world))
        await world.stop()
        world.history.check()
    return world

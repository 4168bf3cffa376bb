"""Random histories of pods with volumes: drivers are slow, fail, hang, die and restart."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.sim.api import NODE
from tests.sim.chaos import CONVERGES_WITHIN, EMPTY_WITHIN, Chaos
from tests.sim.csi_drivers import SimDriver
from tests.sim.storage import Storage
from tests.sim.user import container, pod
from tests.sim.world import DRIVERS, World

CLAIMS = tuple(f"{driver}-{number}" for driver in DRIVERS for number in range(2))
SOLE = tuple(f"{driver}-sole" for driver in DRIVERS)
"""For one pod alone (ReadWriteOncePod)."""
BLOCK = tuple(f"{driver}-block" for driver in DRIVERS)
ALL = (*CLAIMS, *SOLE, *BLOCK)
INLINE_DRIVER = "plain"
RECOVERS_WITHIN = 300.0
"""Beyond what a pod without volumes needs: calls that hung (120) and operations that back off
(122)."""


def storage_of(world: World) -> Storage:
    """The storage of a world that has some."""
    assert world.storage is not None
    return world.storage


def pod_with(
    name: str,
    claims: Sequence[str],
    *,
    inline: bool = False,
    ephemeral: Sequence[str] = (),
    parts: Sequence[str] = (),
    what: str = "run",
) -> JSON:
    """A pod whose one container has these claims.

    Args:
        name: the pod's.
        claims: those of ``BLOCK`` are devices.
        inline: it has a volume of its own.
        ephemeral: drivers of volumes that live as long as it does.
        parts: the claims of which it mounts a directory, too.
        what: the container's image.
    """
    volumes: list[JSON] = [
        {"name": f"v-{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims
    ]
    if inline:
        volumes.append({"name": f"{INLINE_DRIVER}-inline", "csi": {"driver": INLINE_DRIVER}})
    for driver in ephemeral:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        template = {"volumeClaimTemplate": {"spec": spec}}
        volumes.append({"name": f"{driver}-ephemeral", "ephemeral": template})
    devices = {f"v-{claim}" for claim in claims if claim in BLOCK}
    names = [volume["name"] for volume in volumes]
    mounts = [{"name": n, "mountPath": f"/mnt/{n}"} for n in names if n not in devices]
    for claim in parts:
        part = {"subPath": "some/where", "mountPath": f"/part/{claim}"}
        mounts.append({"name": f"v-{claim}", **part})
    seen: JSON = {"volumeMounts": mounts}
    if devices:
        seen["volumeDevices"] = [{"name": n, "devicePath": f"/dev/{n}"} for n in sorted(devices)]
    return pod(name, [container("c0", what, **seen)], grace=2, volumes=volumes)


def set_out(world: World) -> None:
    """Make the claims, and start the drivers."""
    for claim in ALL:
        mode = "ReadWriteOncePod" if claim in SOLE else "ReadWriteMany"
        storage_of(world).add_claim(claim, claim.partition("-")[0], mode=mode, block=claim in BLOCK)
    for driver in world.drivers.values():
        driver.start()


def damage_something(world: World, rng: random.Random) -> None:
    """Lose or truncate a file that identifies the volume in a directory."""
    found = sorted((world.root / "kubelet").rglob("vol_data.json"))
    if found:
        world.mounts.damage(rng.choice(found), torn=rng.random() < 0.5)


class StorageChaos(Chaos):
    """Makes storage go wrong, in addition to the rest."""

    async def unleash(self, seconds: float) -> None:
        """Cause faults, outages, deaths and users' actions for so many seconds."""
        self._set_rates()
        end = self._world.loop.time() + seconds
        made = 0
        while self._world.loop.time() < end:
            await asyncio.sleep(self._rng.expovariate(1 / 2.5))
            point = self._rng.random()
            if point < 0.5:
                made += 1
                self._use(made)
            elif point < 0.68:
                self._upset(self._rng.choice(list(self._world.drivers.values())))
            elif point < 0.7:
                damage_something(self._world, self._rng)
            elif point < 0.72:
                await self._reboot()
            else:
                await self._mishap()
        await self._revive()

    async def _reboot(self) -> None:
        self._world.on_step = None
        self._world.reboot()
        await self._world.buried()
        if self._rng.random() < 0.7:
            self._world.start()

    def _set_rates(self) -> None:
        super()._set_rates()
        for driver in self._world.drivers.values():
            driver.faults = self._rng.choice((0.0, 0.0, 0.2, 0.6))
            driver.slow = self._rng.choice((0.0, 0.05, 0.3))

    def _use(self, number: int) -> None:
        world, rng = self._world, self._rng
        pods = world.user.pods()
        if len(pods) < 4 and (not pods or rng.random() < 0.5):
            used = claims_of(world)
            free = [claim for claim in ALL if claim not in SOLE or claim not in used]
            claims = rng.sample(free, rng.choice((0, 1, 1, 2, 3)))
            new = pod_with(
                f"pod{number}",
                claims,
                inline=not claims or rng.random() < 0.2,
                ephemeral=rng.sample(list(DRIVERS), rng.choice((0, 0, 0, 1))),
                parts=[c for c in claims if c not in BLOCK and rng.random() < 0.3],
                what=rng.choice(("run", "run", "stubborn", "slowstop", "failslow")),
            )
            world.user.create(new)
        elif rng.random() < 0.3:
            storage_of(world).expand(rng.choice(ALL), recovery=rng.random() < 0.5)
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
    """The differences that must not remain in the long run."""
    return [*world.problems(), *storage_of(world).unexpanded(claims_of(world))]


def claims_of(world: World) -> set[str]:
    """The claims that pods have; not those made for them alone."""
    return {
        volume["persistentVolumeClaim"]["claimName"]
        for obj in world.user.pods()
        for volume in obj["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    }


def remains(world: World) -> list[str]:
    """Everything that the agent and the drivers still hold after all pods were removed."""
    found = world.remains()
    for driver in world.drivers.values():
        found += driver.left()
    found += world.mounts.left()
    found += [f"attachment {name}" for name in storage_of(world).attachments()]
    kubelet = world.root / "kubelet"
    found += [str(path) for path in (kubelet / "plugins").rglob("*") if _extra(path)]
    pods = kubelet / "pods"
    for places in ("volumes/*/*", "volumeDevices/*/*", "volume-subpaths/*/*"):
        found += [str(path) for path in pods.glob(f"*/{places}")]
    node = world.registry.find("nodes", "", NODE) or {}
    if in_use := (node.get("status") or {}).get("volumesInUse"):
        found.append(f"volumesInUse {in_use}")
    return found


def _extra(path: Path) -> bool:
    """Below a driver's directory, or below one of those that all devices share."""
    parts = path.parts
    if "csi" not in parts or path.parts[-2:] in (
        ("volumeDevices", "staging"),
        ("volumeDevices", "publish"),
    ):
        return False
    return len(parts) - parts.index("csi") > 2


async def history(seed: int, root: Path, *, seconds: float = 120.0) -> World:
    """Live through one history and judge it.

    Raises Violation with the story when an invariant was broken or the node did not converge.
    """
    rng = random.Random(f"{seed} storage chaos")
    world = World(seed, root, events=bool(seed % 2), storage=True)
    with world.mounts.in_place():
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

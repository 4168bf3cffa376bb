"""Pods with claims of devices, and what goes wrong with their drivers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.resources.dra.claim_manager import ClaimManager
from kubeletpy_up.kinds.devices import CLAIMS
from kubeletpy_up.requests import ADMIN
from tests.sim.chaos import CONVERGES_WITHIN, EMPTY_WITHIN, Chaos
from tests.sim.claim_drivers import ClaimDriver
from tests.sim.user import NAMESPACE, container, pod
from tests.sim.world import World

RECOVERS_WITHIN = 400.0
"""Beyond what a pod without claims needs: calls that hung (45) and waits that doubled (60)."""


class Cluster:
    """Makes, allocates and reserves claims, in place of users and the scheduler."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = 0

    def claim(self, *drivers: str) -> str:
        """Make an allocated claim that is reserved for no pod; returns its name."""
        self._made += 1
        name = f"claim{self._made}"
        requests = [
            {"name": f"r{index}", "exactly": {"deviceClassName": "any"}}
            for index in range(len(drivers))
        ]
        body = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        registry = self._world.registry
        made = registry.create(ADMIN, CLAIMS, body, NAMESPACE)
        results = [
            {"request": f"r{index}", "driver": driver, "pool": "pool", "device": "d0"}
            for index, driver in enumerate(drivers)
        ]
        made = {**made, "status": {"allocation": {"devices": {"results": results}}}}
        registry.update(ADMIN, CLAIMS, made, NAMESPACE, name=name, subresource="status")
        return name

    def use(self, name: str, claims: Sequence[str], what: str = "run") -> None:
        """Make a pod whose one container has these claims, and reserve them for it afterwards."""
        entries = [{"name": each, "resourceClaimName": each} for each in claims]
        requests = {"claims": [{"name": each} for each in claims]}
        obj = pod(
            name, [container("c0", what, resources=requests)], grace=2, resourceClaims=entries
        )
        made = self._world.user.create(obj)
        uid = made["metadata"]["uid"]
        desired = self._world.desired.setdefault(uid, set())
        for claim in claims:
            found = self._world.registry.find(CLAIMS, NAMESPACE, claim)
            assert found is not None
            status = found["status"]
            desired.update(each["driver"] for each in status["allocation"]["devices"]["results"])
            user = {"resource": "pods", "name": name, "uid": uid}
            status = {**status, "reservedFor": [*(status.get("reservedFor") or ()), user]}
            self._world.registry.update(
                ADMIN,
                CLAIMS,
                {**found, "status": status},
                NAMESPACE,
                name=claim,
                subresource="status",
            )


class ClaimChaos(Chaos):
    """Makes drivers of claims go wrong, in addition to the rest."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        super().__init__(world, random.Random(f"{world.seed} claims chaos"))
        self._cluster = cluster
        self._shared = cluster.claim(*world.claim_drivers)

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
            elif point < 0.7:
                self._upset(self._rng.choice(list(self._world.claim_drivers.values())))
            else:
                await self._mishap()
        await self._revive()

    def _set_rates(self) -> None:
        super()._set_rates()
        for driver in self._world.claim_drivers.values():
            driver.faults = self._rng.choice((0.0, 0.0, 0.2, 0.6))
            driver.slow = self._rng.choice((0.0, 0.05, 0.3))
            driver.lies = self._rng.choice((0.0, 0.0, 0.3))

    def _use(self, number: int) -> None:
        world, rng = self._world, self._rng
        pods = world.user.pods()
        if len(pods) < 4 and (not pods or rng.random() < 0.5):
            drivers = list(world.claim_drivers)
            claims = [
                self._cluster.claim(*rng.sample(drivers, rng.randint(1, len(drivers))))
                for _ in range(rng.choice((0, 1, 1, 2)))
            ]
            if rng.random() < 0.4 or not claims:
                claims.append(self._shared)
            what = rng.choice(("run", "run", "stubborn", "slowstop", "failslow", "done"))
            self._cluster.use(f"pod{number}", claims, what)
        else:
            name = rng.choice(pods)["metadata"]["name"]
            world.user.delete(name, rng.choice((None, None, None, 0, 1)))

    def _upset(self, driver: ClaimDriver) -> None:
        rng = self._rng
        point = rng.random()
        if not driver.up:
            driver.start()
        elif point < 0.4:
            driver.die(clean=rng.random() < 0.6)
        elif point < 0.6:
            driver.hang()
        elif point < 0.8:
            driver.wake()
        else:
            driver.faults = rng.choice((0.0, 0.3, 1.0))


def remains(world: World) -> list[str]:
    """Everything that the drivers and the agent still hold after all pods were removed."""
    found = world.remains()
    found += [line for driver in world.claim_drivers.values() for line in driver.left()]
    if world.agent is not None and not found:
        manager = world.agent.component(ClaimManager)
        kept = (
            manager.state.claims,
            dict(manager._locks),
            manager._calls._missing,
            manager._calls._under_way,
            manager._left(),
        )
        found += [f"of claims: {each}" for each in kept if each]
    return found


async def history(seed: int, root: Path, seconds: float = 120.0) -> World:
    """One random life of a node with DRA drivers, to a clean end."""
    world = World(seed, root, events=bool(seed % 2), claims=True)
    for driver in world.claim_drivers.values():
        driver.start()
    chaos = ClaimChaos(world, Cluster(world))
    world.start()
    await chaos.unleash(seconds)
    await world.converges(CONVERGES_WITHIN + RECOVERS_WITHIN)
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN + RECOVERS_WITHIN, lambda: remains(world))
    await world.stop()
    world.history.check()
    return world

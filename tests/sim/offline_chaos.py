"""Random histories in which the API server is absent when the node comes back from power cuts.

Users and a control plane act meanwhile. A node whose lease is not renewed gets a taint: its pods
are deleted after their tolerations. From then on their replacements run elsewhere.
"""

from __future__ import annotations

import asyncio
import math
import random
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy_up.storage.history import Change
from tests.sim.chaos import CONVERGES_WITHIN, EMPTY_WITHIN, Chaos
from tests.sim.loop import spawn
from tests.sim.records import Container, Sandbox
from tests.sim.user import RandomUser, random_pod
from tests.sim.world import World

TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
GRACE_S = 50.0
"""The node controller's, from the last renewal of the lease on."""
OUTAGES = (2.0, 20.0, 60.0, 150.0, 290.0, 340.0, 700.0)
"""Seconds without power, or with power and without an API server."""
YEARS = 50 * 365 * 86_400.0
ENDED_WITHIN = 90.0
"""Seconds after contact for the containers of a deleted pod: the wait between two requests to an
API server that was absent, a list, and the longest grace period."""


def tolerating(seconds: int | None = 300) -> list[JSON]:
    """Tolerations as the control plane adds them; None: as a DaemonSet's pods have them."""
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", **limit} for key in TAINTS]


class ControlPlane:
    """Deletes the pods of a node whose lease is not renewed, and records which were replaced."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heard = world.loop.time()
        self._ran_here: set[str] = set()
        """Pods of which something has started since the last boot."""
        self.replaced: dict[str, float] = {}
        """Pod uid -> when it was deleted because of the node."""
        world.registry.store.subscribe(self._changed)
        world.runtime.observers.append(self._started)

    def _changed(self, change: Change) -> None:
        if change.resource.startswith("leases"):
            self._heard = self._world.loop.time()

    def _started(self, what: str, whom: Container | Sandbox) -> None:
        """Nothing of a pod starts on a node that has not heard of its replacement."""
        if what != "start" or not isinstance(whom, Container):
            return
        world, replaced = self._world, self.replaced.get(whom.uid)
        others = any(each is not whom for each in world.runtime.running(whom.uid))
        if replaced is None or others or whom.uid in self._ran_here:
            self._ran_here.add(whom.uid)
            return
        if replaced < world.truth.began[world.life]:
            world.history.violated(f"{whom} starts, and its pod was replaced at {replaced:.1f}")

    def rebooted(self) -> None:
        """Nothing runs on the node any more."""
        self._ran_here.clear()

    async def run(self) -> None:
        """Taint and evict until cancelled."""
        world = self._world
        while True:
            await asyncio.sleep(5.0)
            silent = world.loop.time() - self._heard - GRACE_S
            for obj in world.user.pods():
                uid = obj["metadata"]["uid"]
                if silent < _tolerated(obj) or uid in self.replaced:
                    continue
                if not obj["metadata"].get("deletionTimestamp"):
                    self.replaced[uid] = world.loop.time()
                    world.user.delete(obj["metadata"]["name"])


def _tolerated(obj: JSON) -> float:
    found = [
        each.get("tolerationSeconds")
        for each in obj["spec"].get("tolerations") or ()
        if each.get("key") == TAINTS[0]
    ]
    if not found:
        return 0.0
    return min((float(each) for each in found if each is not None), default=math.inf)


class TolerantUser(RandomUser):
    """Makes pods with tolerations of every kind."""

    def _create(self, taken: list[str]) -> None:
        rng = self._rng
        again = [name for name in self._free_names if name not in taken]
        name = rng.choice(again) if again and rng.random() < 0.5 else ""
        if not name:
            self._made += 1
            name = f"pod{self._made}"
            self._free_names.append(name)
        obj = random_pod(rng, name)
        limit = rng.choice((300, 300, 30, None, 0))
        obj["spec"]["tolerations"] = tolerating(limit) if limit != 0 else []
        self._user.create(obj)


class PowerCuts(Chaos):
    """Cuts power and uplink together, and brings them back one after the other."""

    async def unleash(self, seconds: float) -> None:
        """Let users act and power fail for a while; the API server is there in the end."""
        world, rng = self._world, self._rng
        self._set_rates()
        self._plane = ControlPlane(world)
        acting = spawn(self._plane.run())
        user = TolerantUser(world.user, world.rng("user"))
        end = world.loop.time() + seconds
        while world.loop.time() < end:
            await asyncio.sleep(rng.expovariate(1 / 4.0))
            point = rng.random()
            if point < 0.8:
                user.act(max_pods=4)
            elif point < 0.9:
                await self._cut(user)
            else:
                self._kill_something()
        await self._cut(user)
        await self._revive()
        acting.cancel()

    async def _cut(self, user: TolerantUser) -> None:
        """One power cut: the API server is absent when the node starts again."""
        world, rng = self._world, self._rng
        if not world.alive:
            await world.buried()
            world.start()
        world.api_down()
        if rng.random() < 0.3:  # the uplink was lost some time before
            await asyncio.sleep(rng.choice(OUTAGES))
        kind = rng.random()
        if kind < 0.2:
            await world.kill()
        else:
            world.reboot()
            await world.buried()
            self._plane.rebooted()
        await self._meanwhile(user, rng.choice(OUTAGES))
        behind = kind >= 0.2 and rng.random() < 0.15
        world.clock_trusted = rng.random() < 0.8
        if behind:
            world.set_clock(-YEARS)
        world.start()
        await self._meanwhile(user, rng.choice(OUTAGES))
        if rng.random() < 0.2:
            await world.kill()
            world.start()
        await asyncio.sleep(rng.uniform(0.0, 30.0))
        if behind:
            world.set_clock(YEARS)
        world.api_up()
        world.clock_trusted = True
        await self._ended()
        await asyncio.sleep(rng.choice((0.0, 1.0, 10.0, 60.0)))

    async def _meanwhile(self, user: TolerantUser, seconds: float) -> None:
        rng = self._rng
        for _ in range(rng.choice((0, 0, 1, 3))):
            await asyncio.sleep(seconds / 4)
            user.act(max_pods=4)
        await asyncio.sleep(seconds)

    async def _ended(self) -> None:
        """See that what was deleted in the outage is ended soon after contact."""
        world = self._world
        at, deleted = world.loop.time(), self._deleted()
        while deleted & {each.uid for each in world.runtime.running()}:
            if world.loop.time() - at > ENDED_WITHIN and not self.harsh:
                world.history.violated(f"pods run {ENDED_WITHIN} s after contact: {deleted}")
                return
            if world.loop.time() - at > 10 * ENDED_WITHIN:
                return  # the judgment at the end decides
            await asyncio.sleep(1.0)

    def _deleted(self) -> set[str]:
        pods = self._world.truth.pods.values()
        return {pod.uid for pod in pods if pod.deleting or pod.removed}


async def offline_history(seed: int, root: Path, *, seconds: float = 60.0) -> World:
    """Live through one history and judge it. Raises Violation."""
    rng = random.Random(f"{seed} offline")
    world = World(seed, root, events=bool(seed % 2), flags={"offline_start": "UntilReplaced"})
    world.start()
    await PowerCuts(world, rng).unleash(seconds)
    await world.converges(CONVERGES_WITHIN)
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN, world.remains)
    await world.stop()
    world.history.check()
    return world

"""Troubles with claims of devices (DRA), device plugins, topology and resizes."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.errors import CRIError
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy_up.kinds.devices import CLAIMS
from kubeletpy_up.requests import ADMIN
from tests.sim.claims import Cluster
from tests.sim.devices import GPU
from tests.sim.troubles import NAME, Trouble
from tests.sim.troubles_storage import begin
from tests.sim.user import NAMESPACE, container, pod, resources
from tests.sim.world import CLAIM_DRIVERS, World

DRIVER = CLAIM_DRIVERS[0]


def _use(world: World) -> float:
    cluster = Cluster(world)
    cluster.use(NAME, [cluster.claim(DRIVER)])
    return world.clock.now()


def with_claim(claim: str) -> JSON:
    """The pod of the trouble, with one claim of devices."""
    requests = {"claims": [{"name": "gpu"}]}
    entries = [{"name": "gpu", "resourceClaimName": claim}]
    return pod(NAME, [container("app", "run", resources=requests)], resourceClaims=entries)


async def _dra_missing(world: World) -> float:
    return _use(world)


async def _dra_hangs(world: World) -> float:
    driver = world.claim_drivers[DRIVER]
    driver.start()
    await asyncio.sleep(3)
    driver.hang()
    return _use(world)


async def _dra_fails(world: World) -> float:
    driver = world.claim_drivers[DRIVER]
    driver.start()
    await asyncio.sleep(3)
    driver.faults = 1.0
    return _use(world)


async def _dra_no_claim(world: World) -> float:
    return await begin(world, with_claim("nope"))


async def _dra_unallocated(world: World) -> float:
    request = {"name": "r0", "exactly": {"deviceClassName": "any"}}
    body = {"metadata": {"name": "later"}, "spec": {"devices": {"requests": [request]}}}
    world.registry.create(ADMIN, CLAIMS, body, NAMESPACE)
    return await begin(world, with_claim("later"))


async def _dra_unprepare(world: World) -> float:
    driver = world.claim_drivers[DRIVER]
    driver.start()
    await asyncio.sleep(3)
    _use(world)
    await world.converges(60)
    driver.hang()
    world.user.delete(NAME)
    return world.clock.now()


def _sized(name: str, cpu: str) -> JSON:
    return pod(name, [container("app", "run", resources=resources(cpu))])


async def _deferred(world: World) -> float:
    world.user.create(_sized(NAME, "1"))
    world.user.create(_sized("other", "2"))
    await world.converges(60)
    await asyncio.sleep(60)
    world.user.resize(NAME, 0, resources("3"))
    return world.clock.now()


async def _infeasible(world: World) -> float:
    """A container with CPUs for itself keeps their number."""
    world.user.create(_with({"cpu": "1", "memory": "32Mi"}))
    await asyncio.sleep(60)
    more = {"cpu": "2", "memory": "32Mi"}
    world.user.resize(NAME, 0, {"requests": more, "limits": more})
    return world.clock.now()


async def _resize_fails(world: World) -> float:
    world.user.create(_sized(NAME, "1"))
    await world.converges(60)
    await asyncio.sleep(60)

    async def refuse(container_id: str, linux: object) -> None:
        why = "write cpu.max: invalid argument"
        raise CRIError("UpdateContainerResources", why, target=container_id)

    setattr(world.runtime, "update_container_resources", refuse)  # noqa: B010
    world.user.resize(NAME, 0, resources("2"))
    return world.clock.now()


async def registered(world: World) -> None:
    """Wait until the device plugin is registered."""
    devices, agent = world.devices, world.agent
    assert devices is not None
    assert agent is not None
    socket = next(iter(devices.sockets))
    await agent.component(DeviceManager).plugins.register(GPU, socket)
    await asyncio.sleep(2)


def _with(amounts: JSON) -> JSON:
    both = {"requests": amounts, "limits": amounts}
    return pod(NAME, [container("app", "run", resources=both)])


async def _too_many_devices(world: World) -> float:
    await registered(world)
    return await begin(world, _with({"cpu": "1", "memory": "32Mi", GPU: "40"}))


async def _topology(world: World) -> float:
    await registered(world)
    return await begin(world, _with({"cpu": "1", "memory": "32Mi", GPU: "3"}))


async def _unhealthy(world: World) -> float:
    await registered(world)
    devices: Any = world.devices
    world.user.create(_with({"cpu": "1", "memory": "32Mi", GPU: "1"}))
    await world.converges(60)
    devices.plugin.now(**dict.fromkeys(devices.all, "Unhealthy"))
    await asyncio.sleep(3)
    world.user.delete(NAME)
    await asyncio.sleep(20)
    return await begin(world, _with({"cpu": "1", "memory": "32Mi", GPU: "1"}))


_CLAIMS = {"claims": True}
_DEVICES = {"devices": True}
TROUBLES = (
    Trouble("dra-driver-is-not-registered", _dra_missing, options=_CLAIMS),
    Trouble("dra-driver-does-not-answer", _dra_hangs, lasts=30.0, options=_CLAIMS),
    Trouble("dra-driver-answers-with-an-error", _dra_fails, options=_CLAIMS),
    Trouble("resource-claim-does-not-exist", _dra_no_claim, options=_CLAIMS),
    Trouble("resource-claim-is-not-allocated", _dra_unallocated, options=_CLAIMS),
    Trouble(
        "dra-driver-hangs-while-the-claim-is-released", _dra_unprepare, lasts=30.0, options=_CLAIMS
    ),
    Trouble("resize-that-other-pods-leave-no-room-for", _deferred),
    Trouble(
        "resize-that-the-node-can-never-carry-out",
        _infeasible,
        options=_DEVICES,
        settings={"topologyManagerPolicy": "none"},
    ),
    Trouble("resize-that-the-runtime-rejects", _resize_fails),
    Trouble(
        "more-devices-than-there-are",
        _too_many_devices,
        options=_DEVICES,
        settings={"topologyManagerPolicy": "none", "cpuManagerPolicy": "none"},
    ),
    Trouble(
        "devices-that-are-not-on-one-numa-node",
        _topology,
        seed=3,
        options=_DEVICES,
        settings={"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static"},
    ),
    Trouble(
        "all-devices-are-unhealthy",
        _unhealthy,
        options=_DEVICES,
        settings={"topologyManagerPolicy": "none", "cpuManagerPolicy": "none"},
    ),
)

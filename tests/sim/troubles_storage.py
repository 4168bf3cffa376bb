"""Troubles with storage drivers, claims and the node's own paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.sim.storage import Storage
from tests.sim.troubles import NAME, Trouble
from tests.sim.user import container, pod
from tests.sim.world import World


def storage(world: World) -> Storage:
    """The storage of a world that has some."""
    assert world.storage is not None
    return world.storage


def using(*volumes: JSON, devices: Sequence[str] = (), **more: Any) -> JSON:
    """The pod of the trouble, with volumes that its one container mounts or has as devices."""
    mounts = [
        {"name": v["name"], "mountPath": f"/mnt/{v['name']}"}
        for v in volumes
        if v["name"] not in devices
    ]
    made = container("app", "run", volumeMounts=mounts)
    if devices:
        made["volumeDevices"] = [{"name": n, "devicePath": f"/dev/{n}"} for n in devices]
    return pod(NAME, [made], volumes=list(volumes), **more)


def claimed(claim: str) -> JSON:
    """A volume named "data" of a claim."""
    return {"name": "data", "persistentVolumeClaim": {"claimName": claim}}


async def begin(world: World, obj: JSON) -> float:
    """Create the pod of the trouble; returns the time."""
    world.user.create(obj)
    return world.clock.now()


async def _not_registered(world: World) -> float:
    storage(world).add_claim("db", "plain")
    return await begin(world, using(claimed("db")))


async def _hangs(world: World) -> float:
    storage(world).add_claim("db", "stager")
    driver = world.drivers["stager"]
    driver.start()
    driver.hang()
    return await begin(world, using(claimed("db")))


async def _fails(world: World) -> float:
    storage(world).add_claim("db", "plain")
    driver = world.drivers["plain"]
    driver.start()
    driver.faults = 1.0
    return await begin(world, using(claimed("db")))


async def _unbound(world: World) -> float:
    storage(world).add_claim("db", "plain", bound=False)
    world.drivers["plain"].start()
    return await begin(world, using(claimed("db")))


async def _no_claim(world: World) -> float:
    return await begin(world, using(claimed("nope")))


async def _not_attached(world: World) -> float:
    storage(world).add_claim("db", "stager")
    world.drivers["stager"].start()
    storage(world).drivers["stager"] = False  # nobody attaches any more
    return await begin(world, using(claimed("db")))


async def _no_driver_object(world: World) -> float:
    volume = {"name": "cache", "csi": {"driver": "inline.example.com"}}
    return await begin(world, using(volume))


async def _block(world: World) -> float:
    storage(world).add_claim("raw", "plain", block=True)
    world.drivers["plain"].start()
    return await begin(world, using(claimed("raw")))


async def _host_path(world: World) -> float:
    volume = {"name": "models", "hostPath": {"path": "/nowhere/models", "type": "Directory"}}
    return await begin(world, using(volume))


async def _unpublish(world: World) -> float:
    storage(world).add_claim("db", "plain")
    driver = world.drivers["plain"]
    driver.start()
    world.user.create(using(claimed("db"), grace=2))
    await world.converges(60)
    driver.hang()
    world.user.delete(NAME)
    return world.clock.now()


_STORAGE = {"storage": True}
TROUBLES = (
    Trouble("node-plugin-of-its-csi-driver-is-not-registered", _not_registered, options=_STORAGE),
    Trouble("csi-driver-does-not-answer-nodestagevolume", _hangs, options=_STORAGE),
    Trouble("csi-driver-answers-with-an-error", _fails, options=_STORAGE),
    Trouble("claim-is-not-bound", _unbound, options=_STORAGE),
    Trouble("claim-does-not-exist", _no_claim, options=_STORAGE),
    Trouble("volume-is-not-attached", _not_attached, options=_STORAGE),
    Trouble("driver-that-the-cluster-does-not-have", _no_driver_object, options=_STORAGE),
    Trouble("block-claim-that-is-mounted-as-a-file-system", _block, options=_STORAGE),
    Trouble("hostpath-directory-that-is-not-there", _host_path),
    Trouble("csi-driver-hangs-while-its-volume-is-unmounted", _unpublish, options=_STORAGE),
)

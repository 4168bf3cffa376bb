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
    Trouble(
        name="the node plugin of its CSI driver is not registered",
        kind="storage drivers",
        make=_not_registered,
        what=("volume data", "driver (name )?plain", "not (found .*)?registered"),
        waits=("plain",),
        todo=("driver plain", "node plugin|DaemonSet"),
        wrong=("create it in namespace",),
        options=_STORAGE,
    ),
    Trouble(
        name="its CSI driver does not answer NodeStageVolume",
        kind="storage drivers",
        make=_hangs,
        what=("volume data", "stager", "NodeStageVolume"),
        waits=("NodeStageVolume",),
        todo=("driver stager", "log"),
        options=_STORAGE,
    ),
    Trouble(
        name="its CSI driver answers with an error",
        kind="storage drivers",
        make=_fails,
        what=("volume data", "plain", "injected: NodePublishVolume"),
        waits=("NodePublishVolume",),
        todo=("driver plain", "log"),
        options=_STORAGE,
    ),
    Trouble(
        name="its claim is not bound",
        kind="storage drivers",
        make=_unbound,
        what=("volume data", "claim .*db", "not bound|unbound|Pending"),
        waits=("bound|bind",),
        todo=("describe pvc|StorageClass|provisioner", "db"),
        options=_STORAGE,
    ),
    Trouble(
        name="its claim does not exist",
        kind="storage drivers",
        make=_no_claim,
        what=("volume data", "claim.*nope", "not found|does not exist|not there"),
        waits=("nope",),
        todo=("create", "nope", "namespace default"),
        wrong=("optional",),
        options=_STORAGE,
    ),
    Trouble(
        name="its volume is not attached",
        kind="storage drivers",
        make=_not_attached,
        what=("volume data", "attach"),
        waits=("attach",),
        todo=("attach", "kubectl|log|controller", "stager"),
        options=_STORAGE,
    ),
    Trouble(
        name="a driver that the cluster does not have",
        kind="storage drivers",
        make=_no_driver_object,
        what=("volume cache|cache", r"inline\.example\.com"),
        waits=(r"inline\.example\.com",),
        todo=("install|CSIDriver", r"inline\.example\.com"),
        wrong=("create it in namespace",),
        options=_STORAGE,
    ),
    Trouble(
        name="a block claim that is mounted as a file system",
        kind="storage drivers",
        make=_block,
        what=("volume data|data", "block"),
        waits=("block",),
        todo=("volumeDevices|volumeMode",),
        options=_STORAGE,
    ),
    Trouble(
        name="a hostPath directory that is not there",
        kind="storage drivers",
        make=_host_path,
        what=("models", "/nowhere/models"),
        waits=("/nowhere/models",),
        todo=("/nowhere/models|path", "create|type", "node"),
        wrong=("pvc",),
    ),
    Trouble(
        name="its CSI driver hangs while its volume is unmounted",
        kind="termination",
        make=_unpublish,
        what=("stopped", "data", "plain", "NodeUnpublishVolume"),
        waits=("NodeUnpublishVolume",),
        todo=("driver plain", "log"),
        options=_STORAGE,
    ),
)

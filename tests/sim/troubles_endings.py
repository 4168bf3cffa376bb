"""Troubles with termination, deadlines, evictions and the network."""

from __future__ import annotations

import asyncio

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.remote.errors import CRIError
from tests.sim import scripts
from tests.sim.loop import spawn
from tests.sim.pressure import MEMORY, Appetite
from tests.sim.test_endings import event_messages
from tests.sim.troubles import NAME, Trouble
from tests.sim.troubles_storage import begin
from tests.sim.user import container, pod
from tests.sim.world import World

HOLD = "example.com/hold"
TICK_S = 0.1


async def running(world: World, obj: JSON) -> None:
    """Create the pod of the trouble and let it run for a while."""
    world.user.create(obj)
    await world.converges(60)
    await asyncio.sleep(60)


async def _pre_stop(world: World) -> float:
    hook = {"preStop": {"sleep": {"seconds": 80}}}
    await running(world, pod(NAME, [container("app", "run", lifecycle=hook)], grace=100))
    world.user.delete(NAME)
    return world.clock.now()


async def _stop_fails(world: World) -> float:
    await running(world, pod(NAME, [container("app", "run")], grace=2))

    async def refuse(container_id: str, timeout: int) -> None:
        raise CRIError("StopContainer", "shim is not responding", target=container_id)

    async def refuse_sandbox(sandbox_id: str) -> None:
        raise CRIError("StopPodSandbox", "shim is not responding", target=sandbox_id)

    setattr(world.runtime, "stop_container", refuse)  # noqa: B010
    setattr(world.runtime, "stop_pod_sandbox", refuse_sandbox)  # noqa: B010
    world.user.delete(NAME)
    return world.clock.now()


async def _runtime_away(world: World) -> float:
    await running(world, pod(NAME, [container("app", "stubborn")], grace=100))
    world.user.delete(NAME)
    began = world.clock.now()
    await asyncio.sleep(1)
    world.runtime_down()
    return began


async def _finalizer(world: World) -> float:
    held = pod(NAME, [container("app", "run")], grace=2)
    held["metadata"]["finalizers"] = [HOLD]
    await running(world, held)
    world.user.delete(NAME)
    return world.clock.now()


async def _deadline(world: World) -> float:
    made = [container("app", "run", scripts.MISSING)]
    began = await begin(world, pod(NAME, made, restart="Never", activeDeadlineSeconds=40))
    return began + 40


async def _deadline_of_a_runner(world: World) -> float:
    made = [container("app", "run")]
    began = await begin(world, pod(NAME, made, restart="Never", activeDeadlineSeconds=60))
    return began + 60


async def _tick(world: World) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        assert world.judge is not None
        world.judge.tick()


async def _evicted(world: World) -> float:
    assert world.stores is not None
    world.stores.appetites[NAME] = Appetite(memory=(MEMORY * 0.5, MEMORY * 0.02))
    spawn(_tick(world))
    world.user.create(pod(NAME, [container("app", "run")]))

    def lacking() -> list[str]:
        return [] if event_messages(world, NAME, "Evicted") else ["not evicted"]

    await world.converges(300, lacking)
    events = [entry.object for _, entry in world.registry.store.entries("events")]
    return min(parse_time(e["firstTimestamp"]) for e in events if e["reason"] == "Evicted")


async def _node_under_pressure(world: World) -> float:
    assert world.stores is not None
    world.stores.appetites["eater"] = Appetite(memory=(MEMORY * 0.95, 0))
    spawn(_tick(world))
    world.user.create(pod("eater", [container("app", "run")]))
    await asyncio.sleep(25)
    return await begin(world, pod(NAME, [container("app", "run")]))


async def _no_network(world: World) -> float:
    world.runtime.network_ready = False
    await asyncio.sleep(60)
    return await begin(world, pod(NAME, [container("app", "run")]))


async def _no_resolv_conf(world: World) -> float:
    return await begin(world, pod(NAME, [container("app", "run")], dnsPolicy="Default"))


async def _registry_name(world: World) -> float:
    async def unknown(image: str, auth: object) -> str:
        why = (
            f'failed to pull and unpack image "{image}": failed to resolve image: failed to do '
            'request: Head "https://remote.test/v2/run/manifests/1": dial tcp: lookup remote.test '
            "on 192.0.2.53:53: no such host"
        )
        raise CRIError("PullImage", why, target=image)

    setattr(world.runtime, "pull_image", unknown)  # noqa: B010
    return await begin(world, pod(NAME, [container("app", "run", scripts.REMOTE)]))


_PRESSURE = {"pressure": True}
TROUBLES = (
    Trouble("prestop-hook-that-takes-long", _pre_stop, lasts=30.0),
    Trouble("runtime-that-cannot-stop-a-container", _stop_fails),
    Trouble("runtime-that-is-away-while-a-pod-ends", _runtime_away),
    Trouble("finalizer-that-nobody-removes", _finalizer),
    Trouble("deadline-that-passes-before-the-image-is-there", _deadline),
    Trouble("deadline-that-passes-while-the-pod-runs", _deadline_of_a_runner),
    Trouble("evicted-for-the-node-memory", _evicted, options=_PRESSURE),
    Trouble(
        "refused-by-a-node-that-is-short-of-memory",
        _node_under_pressure,
        lasts=20.0,
        options=_PRESSURE,
    ),
    Trouble("node-whose-network-is-not-ready", _no_network),
    Trouble(
        "node-resolv.conf-cannot-be-read",
        _no_resolv_conf,
        settings={"resolvConf": "/nowhere/resolv.conf"},
    ),
    Trouble("registry-name-does-not-resolve", _registry_name),
)

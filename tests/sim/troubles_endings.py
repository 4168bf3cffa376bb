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
    Trouble(
        name="a preStop hook that takes long",
        kind="termination",
        make=_pre_stop,
        what=("terminating", "container app", "preStop"),
        waits=("hook", "app"),
        todo=("--now|preStop",),
        lasts=30.0,
    ),
    Trouble(
        name="a runtime that cannot stop a container",
        kind="termination",
        make=_stop_fails,
        what=("terminating", "app", "shim is not responding"),
        waits=("shim is not responding",),
        todo=("runtime", "log"),
    ),
    Trouble(
        name="a runtime that is away while a pod ends",
        kind="termination",
        make=_runtime_away,
        what=("terminating", "runtime"),
        waits=("runtime",),
        todo=("runtime", "log|systemctl"),
    ),
    Trouble(
        name="a finalizer that nobody removes",
        kind="termination",
        make=_finalizer,
        what=("finalizer", HOLD),
        waits=("finalizer", HOLD),
        todo=("finalizer", "controller"),
    ),
    Trouble(
        name="a deadline that passes before the image is there",
        kind="deadlines",
        make=_deadline,
        what=("DeadlineExceeded|deadline",),
        todo=("activeDeadlineSeconds",),
    ),
    Trouble(
        name="a deadline that passes while the pod runs",
        kind="deadlines",
        make=_deadline_of_a_runner,
        what=("DeadlineExceeded|deadline",),
        todo=("activeDeadlineSeconds",),
    ),
    Trouble(
        name="evicted for the node's memory",
        kind="eviction",
        make=_evicted,
        what=("evicted", "memory"),
        todo=("memory|--node",),
        options=_PRESSURE,
    ),
    Trouble(
        name="refused by a node that is short of memory",
        kind="eviction",
        make=_node_under_pressure,
        what=("refused|evicted", "memory"),
        todo=("memory|pressure|--node",),
        wrong=("raise the limit",),
        lasts=20.0,
        options=_PRESSURE,
    ),
    Trouble(
        name="a node whose network is not ready",
        kind="DNS and network",
        make=_no_network,
        what=("network", "cni plugin not initialized"),
        waits=("network",),
        todo=("CNI|network plugin",),
    ),
    Trouble(
        name="the node's resolv.conf cannot be read",
        kind="DNS and network",
        make=_no_resolv_conf,
        what=("/nowhere/resolv.conf",),
        waits=("/nowhere/resolv.conf",),
        todo=("resolvConf",),
        settings={"resolvConf": "/nowhere/resolv.conf"},
    ),
    Trouble(
        name="the registry's name does not resolve",
        kind="DNS and network",
        make=_registry_name,
        what=("container app", r"remote\.test", "no such host"),
        waits=("image", "no such host"),
        todo=("registry's name|DNS", "node|resolve"),
    ),
)

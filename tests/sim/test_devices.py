"""The whole agent with a device plugin and exclusive CPUs, on NUMA machines of many shapes.

Plugins die, come back, lie about health and hang, the agent is killed: no device and no CPU is
given twice, and none is taken from a container that runs. ``KUBELETPY_SIM_SEED=n`` replays one
seed.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.resources.devices.device_manager import RETURNS_WITHIN_S, DeviceManager
from kubeletpy.resources.placement.managers import CpuManager
from tests.sim.chaos import EMPTY_WITHIN
from tests.sim.devices import GPU, OWN, SHARER, Devices, supplied
from tests.sim.loop import run, seeds, spawn
from tests.sim.user import container, pod
from tests.sim.world import World

RUNS = 12
SECONDS = 200.0
SETTLES_WITHIN = 900.0
"""Seconds: an allocation that hangs is given up after 300, and crash loops wait for 300."""
REFUSALS = ("UnexpectedAdmissionError", "TopologyAffinityError", "SMTAlignmentError")


def random_pod(rng: random.Random, name: str) -> JSON:
    """A pod with devices, CPUs for itself, both or neither; some are placed as one."""
    gpus, cpus = rng.randint(0, 3), rng.choice(("100m", "1", "2"))
    amounts = {"cpu": cpus, "memory": "32Mi", **({GPU: str(gpus)} if gpus else {})}
    both = {"requests": amounts, "limits": amounts}
    init = [container("i", "done", resources=both)] if rng.random() < 0.3 else []
    which = "shared" if cpus == "100m" else OWN
    made = pod(name, [container(which, "run", resources=both)], init=init, grace=2)
    if which == OWN and rng.random() < 0.75:
        whole = {"cpu": "3", "memory": "96Mi"}
        made["spec"]["resources"] = {"requests": whole, "limits": whole}
        made["spec"]["containers"].append(container(SHARER, "run"))
    return made


async def _history(seed: int, root: Path) -> World:
    world = World(seed, root, events=bool(seed % 2), devices=True)
    devices, rng = world.devices, world.rng("deeds")
    assert devices is not None
    spawn(devices.keep_registering(lambda: (world.agent if world.alive else None, world.life)))
    world.start()
    end, made = world.loop.time() + SECONDS, 0
    while world.loop.time() < end:
        await asyncio.sleep(rng.expovariate(1 / 4))
        names = [obj["metadata"]["name"] for obj in world.user.pods()]
        match rng.randrange(8):
            case 0 if names:
                world.user.delete(rng.choice(names))
            case 1:
                devices.upset()
            case 2 if running := world.runtime.running():
                world.runtime.kill_container(rng.choice(running))
            case 3:
                before = {c.id: (c.uid, supplied(c)) for c in world.runtime.running()}
                await world.kill()
                await asyncio.sleep(rng.random() * 3)
                world.start()
                world.history.note("world", f"{len(before)} containers run")
            case _ if len(names) < 6:
                world.user.create(random_pod(rng, f"p{made}"))
                made += 1
    devices.comes()
    await world.converges(SETTLES_WITHIN, lambda: _problems(world, devices))
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN, world.remains)
    assert world.agent is not None
    world.agent.component(DeviceManager).release(())
    world.agent.component(CpuManager).release(())
    assert not world.agent.component(DeviceManager).state.held_ids(GPU)
    await world.stop()
    world.history.check()
    return world


def _problems(world: World, devices: Devices) -> list[str]:
    """Check that every pod has what it requests, or was refused for a permitted reason."""
    found = []
    for obj in world.user.pods():
        name, status = obj["metadata"]["name"], obj.get("status") or {}
        if status.get("phase") == "Failed":
            reason = status.get("reason", "")
            if reason not in REFUSALS and not reason.startswith("OutOf"):
                found.append(f"{name} failed: {reason}")
            continue
        first = obj["spec"]["containers"][0]
        running = [
            c
            for c in world.runtime.running(obj["metadata"]["uid"])
            if c.config.metadata.name == first["name"]
        ]
        if not running or status.get("phase") != "Running":
            found.append(f"{name} does not run")
            continue
        requested = first["resources"]["limits"]
        has = supplied(running[0])
        if len(has) != int(requested.get(GPU, 0)) and GPU in requested:
            found.append(f"{name} has {has} of {requested}")
        if any(each not in devices.all for each in has):
            found.append(f"{name} has {has}, which are none")
    return found


@pytest.mark.parametrize("seed", seeds(RUNS))
def test_history(seed: int, tmp_path: Path) -> None:
    run(_history(seed, tmp_path))


@pytest.mark.parametrize(("back_in", "admitted"), [(10.0, True), (119.0, True), (None, False)])
def test_a_plugin_that_comes_back_after_the_agent_at_a_reboot(
    back_in: float | None, admitted: bool, tmp_path: Path
) -> None:
    """The pod runs again with the same devices; refused, it keeps what was known of it."""

    async def story() -> None:
        world = World(1, tmp_path, devices=True)
        devices = world.devices
        assert devices is not None
        devices.settings["topologyManagerPolicy"] = "none"
        spawn(devices.keep_registering(lambda: (world.agent if world.alive else None, world.life)))
        world.start()
        amounts = {"cpu": "100m", "memory": "32Mi", GPU: "2"}
        both = {"requests": amounts, "limits": amounts}
        await asyncio.sleep(5)
        world.user.create(pod("a", [container("shared", "run", resources=both)]))

        def status() -> JSON:
            found = world.user.get("a")
            assert found is not None
            return dict(found.get("status") or {})

        def ready() -> list[str]:
            reported = {c["type"]: c["status"] for c in status().get("conditions") or ()}
            return [] if reported.get("Ready") == "True" else [f"not ready: {reported}"]

        await world.converges(60, ready)
        (runs,) = world.runtime.running()
        before, devices_before = status(), supplied(runs)
        devices.goes()
        world.reboot()
        await world.buried()
        await asyncio.sleep(1)
        world.start()
        await asyncio.sleep(9)
        assert status()["phase"] != "Failed"
        assert ready(), "its containers have ended"
        if back_in is not None:
            await asyncio.sleep(back_in - 9)
            devices.comes()
        if admitted:
            await world.converges(60, ready)
            (runs,) = world.runtime.running()
            assert supplied(runs) == devices_before
            assert status()["containerStatuses"][0]["restartCount"] == 1
        else:
            await asyncio.sleep(RETURNS_WITHIN_S)
            reported = status()
            assert reported["reason"] == "UnexpectedAdmissionError"
            assert "no healthy devices present" in reported["message"]
            assert reported["startTime"] == before["startTime"]
            (entry,) = reported["containerStatuses"]
            assert entry["state"]["terminated"]["exitCode"] == 255
            assert entry["containerID"] == before["containerStatuses"][0]["containerID"]
            assert {c["type"] for c in reported["conditions"]} >= {"Ready", "PodScheduled"}
        world.user.delete("a")
        await world.converges(EMPTY_WITHIN, world.remains)
        await world.stop()
        world.history.check()

    run(story())

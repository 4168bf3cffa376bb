"""Volume operations over time: drivers that fail, hang and come late, agents that are killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from kubeletpy.volumes.claims.model import OperationFailed, VolumeSpec, WaitCause, Waits
from tests.kit.virtual_time import on_virtual_time
from tests.kit.volumes import ObservedNode, pod, spec, volume_manager
from tests.sim.volume_plugin import SimulatedDisk, SimulatedPlugin

pytestmark = pytest.mark.virtual_time

VOLUMES = ("va", "vb")
UIDS = ("u1", "u2", "u3")


class Node:
    """The volumes of one life of an agent, its workers played."""

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.plugin = SimulatedPlugin(disk, random.Random(seed))
        self.woken: list[str] = []
        observed = ObservedNode(frozenset())
        self.manager = volume_manager(self.plugin, observed, changed=self.woken.append)

    def dies_at_call(self, number: int) -> None:
        """Have the agent killed in the middle of a call."""
        calls = iter(range(1, number + 1))

        def call() -> None:
            self.plugin.dead = self.plugin.dead or next(calls) == number

        self.plugin.on_call = call

    async def set_up(self, uid: str, *names: str) -> Mapping[str, Waits]:
        """One sync of a pod; when all is there its containers run."""
        specs = [volume(name) for name in names]
        self.manager.demand(pod(uid), specs, {})
        waits = await self.manager.settled(uid)
        if not waits:
            self.disk.running |= {(name, uid) for name in names}
            assert self.disk.running <= self.disk.published
        return waits

    async def tear_down(self, uid: str) -> bool:
        self.disk.running = {key for key in self.disk.running if key[1] != uid}
        try:
            await self.manager.tear_down(uid)
        except OperationFailed:
            return False
        return True


def volume(name: str) -> VolumeSpec:
    return spec(name, spec_name=name, pod_volume=name)


async def started(disk: SimulatedDisk, seed: int = 1) -> Node:
    node = Node(disk, seed)
    await node.manager.run()
    return node


async def test_a_path_being_published_belongs_to_its_pod() -> None:
    """The driver may have mounted it before it answers: nobody else may unmount it."""
    node = await started(SimulatedDisk())
    node.plugin.hanging.add("va")
    assert await node.set_up("u1", "va")
    assert node.manager.state.paths("u1") == {"/u1/va"}
    assert node.manager.state.paths("u2") == set()


async def test_a_pod_gets_its_volume_and_leaves_nothing() -> None:
    disk = SimulatedDisk()
    node = await started(disk)
    assert not await node.set_up("u1", "va")
    assert disk.published == {("va", "u1")}
    assert await node.tear_down("u1")
    await asyncio.sleep(10)
    assert not disk.published
    assert not disk.staged
    assert disk.calls == [
        "NodeStageVolume va",
        "NodePublishVolume va",
        "NodeUnpublishVolume va",
        "NodeUnstageVolume va",
    ]
    await node.manager.close()


async def test_a_driver_that_hangs_holds_up_its_own_volumes_only() -> None:
    disk = SimulatedDisk()
    node = await started(disk)
    node.plugin.hanging = {"va"}
    begun = asyncio.get_running_loop().time()
    waits = await node.set_up("u1", "va", "vb")
    assert asyncio.get_running_loop().time() - begun <= 5.1
    assert waits["va"].cause is WaitCause.BUSY
    assert waits["va"].call == "NodeStageVolume of driver d"
    assert "vb" not in waits
    [notified] = node.manager.reports("u1")
    assert (notified.volume, notified.wait.call, notified.since) == (
        "va",
        "NodeStageVolume of driver d",
        begun,
    )
    assert not await node.set_up("u2", "vb")
    assert await node.tear_down("u2")
    await node.manager.close()


async def test_a_failed_operation_is_retried_when_its_driver_registers() -> None:
    disk = SimulatedDisk()
    node = await started(disk)
    node.plugin.faults = 1.0
    for _ in range(8):
        await node.set_up("u1", "va")
        await asyncio.sleep(30)
    waits = await node.set_up("u1", "va")
    assert waits["va"].cause in (WaitCause.BACKOFF, WaitCause.BUSY)
    assert len(disk.calls) < 20, "it backs off"
    [notified] = node.manager.reports("u1")
    assert notified.since == 0, "all tries of one call are one wait"
    node.plugin.faults = 0.0
    node.woken.clear()
    node.plugin.tell("d")
    await asyncio.sleep(4)
    assert ("va", "u1") in disk.published
    assert "u1" in node.woken
    await node.manager.close()


async def test_a_driver_that_is_not_there_is_waited_for_without_a_call() -> None:
    disk = SimulatedDisk()
    node = await started(disk)
    node.plugin.registered = False
    assert (await node.set_up("u1", "va"))["va"].cause is WaitCause.DRIVER_MISSING
    await asyncio.sleep(600)
    assert not disk.calls
    node.plugin.registered = True
    node.plugin.tell("d")
    await asyncio.sleep(4)
    assert "u1" in node.woken
    assert ("va", "u1") in disk.published
    await node.manager.close()


async def test_a_claim_that_cannot_be_read_takes_nothing_from_a_running_pod() -> None:
    disk = SimulatedDisk()
    node = await started(disk)
    assert not await node.set_up("u1", "va")
    await node.manager.close()
    node = await started(disk, 2)
    node.manager.pods_known()
    unread = Waits(WaitCause.UNREAD, "claim", "503")
    node.manager.demand(pod("u1"), [], {"va": unread})
    disk.staged.add("vb")  # of an agent before; it may be what the claim is of
    await asyncio.sleep(3600)
    assert ("va", "u1") in disk.published
    assert disk.staged == {"va", "vb"}
    assert not await node.set_up("u1", "va")
    await node.manager.close()


async def test_staged_leftovers_are_found() -> None:
    disk = SimulatedDisk()
    disk.staged.add("va")
    node = await started(disk)
    await asyncio.sleep(60)
    assert disk.staged == {"va"}, "pods are not known yet"
    node.manager.pods_known()
    await asyncio.sleep(5)
    assert not disk.staged
    await node.manager.close()


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_with_kills(seed: int) -> None:
    on_virtual_time(_random_history)(seed)


async def _random_history(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimulatedDisk()
    living: dict[str, tuple[str, ...]] = {}
    ended: set[str] = set()
    for life in range(4):
        node = await started(disk, seed * 10 + life)
        node.plugin.faults = rng.choice((0.0, 0.3, 0.7))
        node.dies_at_call(rng.randint(1, 12))
        for _ in range(12):
            if node.plugin.dead:
                break
            uid = rng.choice(UIDS)
            if uid in ended:
                continue
            if uid in living and rng.random() < 0.3:
                ended.add(uid)
                del living[uid]
                await node.tear_down(uid)
            else:
                names = living.setdefault(uid, tuple(rng.sample(VOLUMES, rng.randint(1, 2))))
                await node.set_up(uid, *names)
            await asyncio.sleep(rng.choice((0.0, 0.5, 20.0)))
        await node.manager.close()
        assert not disk.violations
    node = await started(disk, seed)
    node.manager.pods_known()
    for uid, names in living.items():
        assert not await node.set_up(uid, *names), "it comes to rest"
    for uid in ended:
        assert await node.tear_down(uid)
    await asyncio.sleep(300)
    assert disk.published == {(name, uid) for uid, names in living.items() for name in names}
    for uid in living:
        assert await node.tear_down(uid)
    await asyncio.sleep(300)
    assert not disk.published
    assert not disk.staged
    assert not disk.violations
    await node.manager.close()

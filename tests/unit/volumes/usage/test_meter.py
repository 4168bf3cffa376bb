"""Usage of volumes is measured in the background, so that no reader waits for a driver."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, cast

from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.volumes import ClaimNumbers
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    MeasuredVolume,
    MountedVolume,
    OperationFailed,
    PublishedOnDisk,
    VolumeStats,
)
from kubeletpy.volumes.usage import AT_ONCE, VolumeMeter
from tests.virtual_time import LoopClock, on_virtual_time, settle


def volume(name: str, source: str = "good", uid: str = "u1") -> MountedVolume:
    left = PublishedOnDisk("kubernetes.io/csi", name, uid, name, f"/{name}", driver=source)
    return MountedVolume(uid, name, ("ns", name), source, left)


class Node:
    """Volumes, and drivers, of which one hangs and one fails."""

    def __init__(self, period: float = 60.0, *, health: bool = True) -> None:
        self.volumes: list[MountedVolume] = []
        self.requested: list[str] = []
        self.sick = False
        self.healed = asyncio.Event()
        self.known: list[MeasuredVolume] = []
        self.notified: list[str] = []
        self.meter = VolumeMeter(
            lambda: self.volumes,
            self.measure,
            cast(Any, self),
            LoopClock(),
            period=period,
            health=health,
            rng=random.Random(1),
        )
        self.running = asyncio.create_task(self.meter.run())

    async def measure(self, left: PublishedOnDisk) -> VolumeStats | None:
        self.requested.append(left.spec_name)
        if left.driver == "hangs":
            await self.healed.wait()
        if left.driver == "fails":
            raise OperationFailed(FailureOutcome.FINAL, "no")
        if left.driver == "mute":
            return None
        return VolumeStats(capacity_bytes=10, abnormal=self.sick, message="on fire")

    def took(self, source: str, seconds: float) -> None:
        pass

    def abnormal(self, found: MeasuredVolume) -> None:
        self.notified.append(f"{found.volume.name}: {found.stats.message}")

    def measured(self, found: Iterable[MeasuredVolume]) -> None:
        self.known = list(found)

    def names(self) -> list[str]:
        of_pods = self.meter.of_pods()
        return sorted(found.volume.name for each in of_pods.values() for found in each)

    async def come(self, *volumes: MountedVolume) -> None:
        self.volumes += volumes
        self.meter.poke()
        await settle()


@on_virtual_time
async def test_a_driver_that_hangs_fails_or_is_mute_holds_up_no_other() -> None:
    node = Node()
    hanging = [volume(f"h{number}", "hangs") for number in range(2 * AT_ONCE)]
    await node.come(*hanging, volume("f", "fails"), volume("m", "mute"), volume("a"))
    assert node.names() == ["a"]
    assert sorted(node.requested) == ["a", "f", *(f"h{n}" for n in range(AT_ONCE)), "m"]
    await asyncio.sleep(600)
    assert node.requested.count("h0") == 1, "it is not called again before it answered"
    assert node.requested.count("a") >= 6
    node.healed.set()
    await asyncio.sleep(100)
    assert len(node.names()) == 1 + len(hanging)
    node.running.cancel()


@on_virtual_time
async def test_volumes_that_go_are_forgotten_also_while_they_are_measured() -> None:
    node = Node()
    await node.come(volume("a"), volume("h", "hangs"))
    assert node.names() == ["a"]
    node.volumes.clear()
    node.meter.poke()
    await settle()
    node.healed.set()
    await asyncio.sleep(100)
    assert not node.names()
    assert not node.known
    node.running.cancel()


@on_virtual_time
async def test_an_unhealthy_volume_is_reported_each_time() -> None:
    node = Node()
    node.sick = True
    await node.come(volume("a"))
    assert node.notified == ["a: on fire"]
    await asyncio.sleep(95)
    assert node.notified == ["a: on fire"] * 2
    node.running.cancel()


@on_virtual_time
async def test_without_the_gate_no_condition_is_reported() -> None:
    """Neither events, nor metrics, nor ``volumeHealthStats`` of the summary."""
    node = Node(health=False)
    node.sick = True
    await node.come(volume("a"))
    assert node.notified == []
    (found,) = node.known
    assert found.stats == VolumeStats(capacity_bytes=10)
    node.running.cancel()


@on_virtual_time
async def test_a_period_that_is_not_above_zero_measures_nothing() -> None:
    node = Node(period=-1)
    await node.come(volume("a"))
    assert node.running.done()
    assert not node.requested


def test_the_first_of_two_pods_with_one_claim_counts_and_removed_claims_vanish() -> None:
    metrics = Metrics()
    one = ClaimNumbers("ns", "a", {"used_bytes": 1, "capacity_bytes": 10})
    metrics.volume_stats.show([one, ClaimNumbers("ns", "a", {"used_bytes": 2, "inodes": 5})])
    reported = metrics.render().decode()
    labels = '{namespace="ns",persistentvolumeclaim="a"}'
    assert f"kubelet_volume_stats_used_bytes{labels} 1\n" in reported
    assert f"kubelet_volume_stats_inodes{labels}" not in reported
    metrics.volume_stats.show([ClaimNumbers("ns", "a", {"capacity_bytes": 11})])
    reported = metrics.render().decode()
    assert f"kubelet_volume_stats_capacity_bytes{labels} 11\n" in reported
    assert f"used_bytes{labels}" not in reported

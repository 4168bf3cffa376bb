"""The health of CSI volumes: stored answers, and when the status of a pod changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, cast

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.volumes import ClaimNumbers
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.status.generate import reported_volume_health
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    MeasuredVolume,
    MountedVolume,
    OperationFailed,
    PublishedOnDisk,
    VolumeStats,
)
from kubeletpy.volumes.csi import messages
from kubeletpy.volumes.csi.client import NodeClient
from kubeletpy.volumes.usage import AT_ONCE, VolumeHealthMonitor, VolumeMeter
from tests.kit.clocks import SetClock
from tests.kit.virtual_time import LoopClock, on_virtual_time, settle

TYPE = csi.VolumeHealthErrorType


def answer(*entries: tuple[Any, str, str]) -> csi.NodeGetVolumeHealthResponse:
    made = csi.NodeGetVolumeHealthResponse()
    for status, reason, message in entries:
        made.volume_health.health_statuses.add(status=status, reason=reason, message=message)
    return made


def condition(status: str, reason: str, message: str = "") -> Any:
    return {"status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("supplied", "expected"),
    [
        (answer(), []),
        (
            answer((TYPE.DEGRADED, "Slow", "m"), (TYPE.DATA_LOSS, "Gone", "")),
            [condition("Degraded", "Slow", "m"), condition("DataLoss", "Gone")],
        ),
        (answer((TYPE.INACCESSIBLE, "", "m")), [condition("Inaccessible", "", "m")]),
        (answer((TYPE.UNKNOWN_VOLUME_HEALTH_TYPE, "a", "")), []),
        (answer((99, "a", "")), []),
        (
            answer((TYPE.DEGRADED, "a", "1"), (TYPE.DEGRADED, "a", "2")),
            [condition("Degraded", "a", "1")],
        ),
        (answer((TYPE.DEGRADED, "no reason!", "m")), [condition("Degraded", "", "m")]),
        (answer((TYPE.DEGRADED, "x" * 257, "m")), [condition("Degraded", "", "m")]),
        (answer((TYPE.DEGRADED, "a\n", "m")), [condition("Degraded", "", "m")]),
    ],
)
def test_the_conditions_of_an_answer(supplied: Any, expected: Any) -> None:
    assert messages.volume_health(supplied) == expected


def test_an_answer_without_bounds_is_cut() -> None:
    many = answer(*((TYPE.DEGRADED, f"r{number}", "é" * 10_000) for number in range(1000)))
    found = messages.volume_health(many)
    assert len(found) == 16
    assert all(len(each["message"].encode()) <= 1024 for each in found)


def entry(name: str, at: str, *conditions: Any) -> Any:
    return {"name": name, "healthConditions": list(conditions), "lastTransitionTime": at}


SICK = condition("Degraded", "Slow", "first")


@pytest.mark.parametrize(
    ("old", "reported", "expected"),
    [
        ([], [], []),
        ([], [entry("v", "2")], []),
        ([], [entry("v", "2", SICK)], [entry("v", "2", SICK)]),
        ([entry("v", "1", SICK)], [], [entry("v", "1", SICK)]),
        ([entry("v", "1", SICK)], [entry("v", "2", SICK)], [entry("v", "1", SICK)]),
        (
            [entry("v", "1", SICK)],
            [entry("v", "2", {**SICK, "message": "other"})],
            [entry("v", "1", SICK)],
        ),
        ([entry("v", "1", SICK)], [entry("v", "2")], [entry("v", "2")]),
        (
            [entry("v", "1", SICK), entry("w", "1", SICK)],
            [entry("w", "2", condition("DataLoss", "Slow"))],
            [entry("v", "1", SICK), entry("w", "2", condition("DataLoss", "Slow"))],
        ),
    ],
)
def test_only_another_set_of_conditions_changes_a_status(
    old: Any, reported: Any, expected: Any
) -> None:
    assert reported_volume_health(old, reported) == expected


class Drivers:
    """Volumes, and the next answer of their drivers."""

    def __init__(self) -> None:
        left = PublishedOnDisk("kubernetes.io/csi", "u", "uid", "pv", "/p", driver="d", handle="h")
        self.volumes = [MountedVolume("uid", "v", None, "d", left)]
        self.answer: Any = [SICK]
        self.notified: list[str] = []
        self.clock = SetClock()
        self.monitor = VolumeHealthMonitor(
            lambda: self.volumes, self.health, self.notified.append, self.clock, period=0
        )

    async def health(self, left: PublishedOnDisk) -> Any:
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_pods_are_notified_of_changed_answers_only() -> None:
    node = Drivers()
    await node.monitor.round()
    assert node.notified == ["uid"]
    (reported,) = node.monitor.of_pod("uid")
    assert (reported["name"], reported["healthConditions"]) == ("v", [SICK])
    node.clock.time += 60
    await node.monitor.round()
    node.answer = OperationFailed(FailureOutcome.TRANSIENT, "no answer")
    await node.monitor.round()
    assert node.notified == ["uid"]
    assert node.monitor.of_pod("uid") == [reported], "a failed call changes nothing"
    node.answer = []
    await node.monitor.round()
    assert node.notified == ["uid", "uid"]
    assert node.monitor.of_pod("uid")[0]["healthConditions"] == []
    node.volumes = []
    await node.monitor.round()
    assert node.monitor.of_pod("uid") == []


async def test_a_driver_without_the_capability_reports_nothing() -> None:
    node = Drivers()
    node.answer = None
    await node.monitor.round()
    assert (node.notified, node.monitor.of_pod("uid")) == ([], [])


class Calls:
    """A driver with some capabilities, and the requests that it got."""

    def __init__(self, *capabilities: Any) -> None:
        self.capabilities = capabilities
        self.requested: list[Any] = []

    async def call(
        self, method: str, request: Any, answer: Any, within: float, *, secrets: Any = ()
    ) -> Any:
        if method == "NodeGetCapabilities":
            return csi.NodeGetCapabilitiesResponse(
                capabilities=[{"rpc": {"type": each}} for each in self.capabilities]
            )
        self.requested.append(request)
        return answer_of_driver()

    async def close(self) -> None:
        """Nothing to close."""


def answer_of_driver() -> csi.NodeGetVolumeHealthResponse:
    return answer((TYPE.DEGRADED, "Slow", "first"))


RPC = csi.NodeServiceCapability.RPC


@pytest.mark.parametrize(
    ("capabilities", "staging", "found"),
    [
        ((RPC.GET_VOLUME_STATS,), None, None),
        ((RPC.GET_VOLUME_HEALTH,), "", [SICK]),
        ((RPC.GET_VOLUME_HEALTH, RPC.STAGE_UNSTAGE_VOLUME), "/s", [SICK]),
    ],
)
async def test_a_driver_is_called_according_to_its_capabilities(
    capabilities: tuple[Any, ...], staging: str | None, found: Any
) -> None:
    calls = Calls(*capabilities)
    client = NodeClient("d", "/x.sock", Metrics().csi, calls)
    assert await client.health("h", "/p", "/s") == found
    desired = csi.NodeGetVolumeHealthRequest(
        volume_id="h", volume_publish_path="/p", staging_target_path=staging or ""
    )
    assert calls.requested == ([] if staging is None else [desired])


# Usage of volumes is measured in the background, so that no reader waits for a driver.


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

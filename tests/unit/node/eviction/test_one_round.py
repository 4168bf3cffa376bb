"""Limits of pods and thresholds of the node, decided in the same rounds, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from kubeletpy.node.eviction.ranking import LAYERS_S
from kubeletpy.node.stats.disk_plan import PodStorage
from tests.unit.node.eviction.machine import MEMORY, Eater, Machine, eater
from tests.unit.node.eviction.rules import GI, rules
from tests.unit.podworkers.builders import make_pod
from tests.virtual_time import on_virtual_time

HARD = rules(
    evictionHard={"memory.available": "1Gi", "nodefs.available": "10Gi"}, enforceNodeAllocatable=[]
)


def limited(name: str, limit: str, disk: int, *, later: int = 0, ends_after: float = 1.0) -> Eater:
    """A pod with a limit, that writes ``later`` more bytes from the 12th second on."""
    pod = make_pod(name, volumes=[{"name": "v", "emptyDir": {"sizeLimit": limit}}])
    return Eater(pod, disk=disk, disk_a_second=later, started=12, ends_after=ends_after)


class Node(Machine):
    """A machine whose pods may have limits; all that they write is in their volume."""

    measuring_s = 0.0
    measured: int = 0

    def __post_init__(self) -> None:
        self.meter = self
        super().__post_init__()

    async def measure(self, desired: Mapping[str, bool]) -> Mapping[str, PodStorage]:
        self.measured += 1
        await asyncio.sleep(self.measuring_s)
        now = self.now()
        return {
            e.pod.uid: PodStorage({"v": e.on_disk(now)})
            for e in self.running()
            if e.pod.uid in desired
        }

    async def runs(self, seconds: float) -> None:
        self.keeper.pods_changed([each.pod.uid for each in self.eaters])
        await super().runs(seconds)


@on_virtual_time
async def test_a_pod_over_its_limit_is_evicted_before_the_largest() -> None:
    node = Node(HARD, [eater("large", disk=89 * GI), limited("over", "1Gi", 0, later=GI)])
    await node.runs(60)
    (only,) = node.evictions
    assert only.name == "over"
    assert 12 < only.at < 19, "the crossing is the reason to measure: the next time were 20"
    assert node.notified[0][1] == ("DiskPressure",)
    (eviction,) = node.keeper.done_for_limits
    assert eviction.pod.name == "over"


@on_virtual_time
async def test_another_pod_is_evicted_when_that_is_not_enough() -> None:
    node = Node(
        HARD,
        [
            eater("large", disk=85 * GI),
            eater("other", disk_a_second=GI // 4),
            limited("over", "1Gi", 0, later=GI // 4),
        ],
    )
    node.layers_go_at = 30
    await node.runs(90)
    assert node.evicted == ["over", "large"]
    over, large = node.evictions
    assert large.at >= 30 > over.at, "what the first has left is waited for"


@on_virtual_time
async def test_memory_does_not_wait_for_pods_over_their_limit() -> None:
    node = Node(
        HARD, [limited("over", "1Gi", 0, later=GI), eater("eater", memory_a_second=MEMORY / 18)]
    )
    node.layers_go_at = 45
    await node.runs(40)
    assert sorted(node.evicted) == ["eater", "over"]
    crossed = 18 * (MEMORY - GI) / MEMORY
    (at,) = (each.at for each in node.evictions if each.name == "eater")
    assert 0 <= at - crossed < 1


@pytest.mark.parametrize("measuring_s", [0.5, 3600.0])
@on_virtual_time
async def test_waiting_for_a_measurement_is_bounded(measuring_s: float) -> None:
    node = Node(HARD, [eater("large", disk=89 * GI), limited("small", "90Gi", 0, later=GI)])
    node.measuring_s = measuring_s
    await node.runs(60)
    (first, *_) = node.evictions
    assert first.name == "large"
    crossed = 13
    assert first.at - crossed < (LAYERS_S + 3 if measuring_s > 60 else 8)


@on_virtual_time
async def test_pods_within_their_limits_are_not_measured_more_often() -> None:
    node = Node(HARD, [eater("calm", disk=GI), limited("small", "30Gi", GI)])
    await node.runs(601)
    assert node.measured == 60
    assert node.evicted == []

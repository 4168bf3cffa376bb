"""Report of explain on a node that runs short, and on an evicted pod."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.node.eviction.decide import (
    Amount,
    Condition,
    Crossing,
    EvictionState,
    Rules,
    Signal,
    SignalObservation,
    Threshold,
)
from kubeletpy.node.eviction.ranking import LAYERS_S, Candidate, Ranked, Reclaim
from kubeletpy.node.eviction.report import (
    EvictionOutcome,
    EvictionRecord,
    EvictionReport,
    HeldCondition,
    Help,
    Level,
    PressureReport,
    RankingEntry,
    Remedy,
    report,
)
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.observe.explain import render
from tests.kit.eviction import DISK, GI, MEMORY, Eater, Machine, eater, rules
from tests.kit.pods import make_pod
from tests.kit.virtual_time import EPOCH

pytestmark = pytest.mark.virtual_time

RULES = rules(
    evictionHard={"memory.available": "1Gi", "nodefs.available": "10Gi", "pid.available": "1000"},
    evictionSoft={"memory.available": "2Gi"},
    evictionSoftGracePeriod={"memory.available": "30s"},
    evictionMinimumReclaim={"nodefs.available": "2Gi"},
    enforceNodeAllocatable=[],
)


def as_json(machine: Machine) -> Any:
    return json.loads(json.dumps(to_builtins(machine.keeper.report())))


async def test_a_healthy_node() -> None:
    machine = Machine(RULES, [eater("calm", memory=GI)])
    await machine.runs(5)
    found = machine.keeper.report()
    assert (found.conditions, found.evictions, found.helps, found.doubts) == ((), (), (), ())
    levels = {(each.field, each.threshold, each.grace) for each in found.levels}
    assert levels == {
        ("evictionHard.memory.available", GI, 0),
        ("evictionSoft.memory.available", 2 * GI, 30),
        ("evictionHard.nodefs.available", 10 * GI, 0),
        ("evictionHard.pid.available", 1000, 0),
    }
    assert all(each.crossed_since is None for each in found.levels)
    text = render.node(as_json(machine))
    assert text.startswith("The node is under no pressure.\n\nThresholds\n")
    line = "15.0 GiB left of 16.0 GiB, acted on below 2.0 GiB for 30s"
    assert f"  evictionSoft.memory.available: {line}\n" in text


async def test_an_eviction_with_its_ranking_and_who_is_next() -> None:
    machine = Machine(
        RULES,
        [
            eater("calm", memory=GI, request=2 * GI),
            eater("big", memory=9 * GI),
            eater("bigger", memory=6 * GI, priority=-5),
            eater("critical", memory=GI // 2, priority=2_000_000_000),
        ],
    )
    await machine.runs(20)
    found = machine.keeper.report()
    (held,) = found.conditions
    assert held.condition is Condition.MEMORY
    assert EPOCH <= held.since < EPOCH + 1
    assert held.ends_at is not None
    assert found.helps == (Help(Remedy.WAIT, None, 0),)
    (eviction,) = found.evictions
    assert (eviction.outcome, eviction.signal, eviction.threshold) == (
        EvictionOutcome.EVICTED,
        Signal.MEMORY,
        GI,
    )
    assert (eviction.available, eviction.capacity) == (0, MEMORY)
    assert eviction.pod is not None and eviction.next is not None
    assert (eviction.pod.name, eviction.next.name) == ("bigger", "big")
    assert [each.name for each in eviction.ranking] == ["bigger", "big", "critical", "calm"]
    view = as_json(machine)
    text = render.node(view)
    assert text.startswith("The node has been under MemoryPressure for 20s; enough again, ends in ")
    assert (
        "evicted default/bigger (used 6.0 GiB, more than its request of 0 GiB, priority -5): "
        "memory.available was 0 GiB, below 1.0 GiB" in text
    )
    assert "Remedies\n  nothing: there is enough again" in text
    notified = render.eviction(view["evictions"][0], view["at"])
    assert notified.startswith(
        "Evicted because the node ran short\n  20s ago: memory.available was 0"
    )
    assert "    3. default/critical: critical or static: stays\n" in notified
    assert notified.endswith("  next would have been default/big")


async def test_reclaims_and_remedies() -> None:
    machine = Machine(RULES, [eater("critical", disk=93 * GI, priority=2_000_000_000)], garbage=GI)
    await machine.runs(20)
    found = machine.keeper.report()
    assert [each.outcome for each in found.evictions][:1] == [EvictionOutcome.RECLAIM_NOT_ENOUGH]
    assert found.helps == (Help(Remedy.FREE_SPACE, Signal.NODEFS, 12 * GI - (DISK - 93 * GI)),)
    text = render.node(as_json(machine))
    assert "removed unused containers and images, which was not enough" in text
    assert "  nodefs.available: 5.0 GiB of space have to be free more" in text
    assert ", crossed for " in text


async def test_a_reclaim_that_was_enough() -> None:
    machine = Machine(RULES, [eater("writer", disk=80 * GI)], garbage=15 * GI)
    await machine.runs(20)
    (eviction,) = machine.keeper.report().evictions
    assert eviction.outcome is EvictionOutcome.RECLAIMED
    assert (eviction.pod, eviction.next, eviction.ranking) == (None, None, ())
    assert "which was enough: nodefs.available was 5.0 GiB, below 10.0 GiB" in render.node(
        as_json(machine)
    )


def test_every_remedy_has_a_text() -> None:
    assert set(render._REMEDIES) == {each.value for each in Remedy}


def test_a_node_that_is_not_watched() -> None:
    assert render.node(None).startswith("this node is not watched")


async def test_the_reason_for_no_eviction_is_logged_once(caplog: Any) -> None:
    machine = Machine(RULES, [eater("critical", memory=16 * GI, priority=2_000_000_000)])
    await machine.runs(100)
    notified = [each for each in caplog.messages if "only critical pods run" in each]
    assert len(notified) == 1


HARD = Threshold(Signal.MEMORY, Amount(1000), reclaim=Amount(50))
SOFT = Threshold(Signal.MEMORY, Amount(share=0.25), 30.0, at="evictionSoft")
FILES = Threshold(Signal.NODEFS_INODES, Amount(500))
SPACE = Threshold(Signal.NODEFS, Amount(100))
TASKS = Threshold(Signal.PIDS, Amount(10))
IMAGES = Threshold(Signal.IMAGEFS, Amount(10))
UNDER = Rules((HARD, SOFT, FILES, SPACE, TASKS, IMAGES), transition=300.0)
SEEN = {
    Signal.MEMORY: SignalObservation(700, 8000, 90.0),
    Signal.NODEFS_INODES: SignalObservation(510, 9000, 90.0),
    Signal.NODEFS: SignalObservation(99, 9000, 90.0),
    Signal.PIDS: SignalObservation(7, 90, 90.0),
}


def under(*crossed: Threshold, **more: Any) -> PressureReport:
    """Report at 100 s of the event loop (1100 s wall time), with thresholds crossed since 80 s."""
    state = EvictionState(first_seen=dict.fromkeys(crossed, 80.0), last=SEEN, **more)
    return report(UNDER, state, {}, (), now=100.0, wall=1100.0)


def test_levels_of_observed_signals() -> None:
    found = under(HARD, IMAGES)
    assert found.levels == (
        Level(Signal.MEMORY, "evictionHard.memory.available", 1000, 0.0, 700, 8000, 1080.0),
        Level(Signal.MEMORY, "evictionSoft.memory.available", 2000, 30.0, 700, 8000, None),
        Level(Signal.NODEFS_INODES, "evictionHard.nodefs.inodesFree", 500, 0.0, 510, 9000, None),
        Level(Signal.NODEFS, "evictionHard.nodefs.available", 100, 0.0, 99, 9000, None),
        Level(Signal.PIDS, "evictionHard.pid.available", 10, 0.0, 7, 90, None),
    )
    assert found.helps == (Help(Remedy.FREE_MEMORY, Signal.MEMORY, 350),)


def test_remedies() -> None:
    """For each signal the threshold that lacks more counts, with the reclaimed minimum."""
    assert under(HARD, SOFT, FILES, SPACE, TASKS).helps == (
        Help(Remedy.FREE_MEMORY, Signal.MEMORY, 1300),
        Help(Remedy.REMOVE_FILES, Signal.NODEFS_INODES, 0),
        Help(Remedy.FREE_SPACE, Signal.NODEFS, 1),
        Help(Remedy.END_PROCESSES, Signal.PIDS, 3),
    )
    assert under().helps == ()
    pressed = {"pressed": {Condition.MEMORY: 90.0}, "since": {Condition.MEMORY: 70.0}}
    assert under(**pressed).helps == (Help(Remedy.WAIT, None, 0),)


def test_until_when_conditions_are_held() -> None:
    """A present condition has no end yet; a past one ends a transition period later."""
    both = dict.fromkeys((Condition.MEMORY, Condition.DISK), 90.0)
    found = under(SPACE, pressed=both, since=dict.fromkeys(both, 70.0))
    assert set(found.conditions) == {
        HeldCondition(Condition.MEMORY, 1070.0, 1390.0),
        HeldCondition(Condition.DISK, 1070.0, None),
    }


def test_past_evictions() -> None:
    first, second = (
        Ranked(Candidate(uid, f"ns/{uid}", 3, False, {}), 40, 30) for uid in ("a", "b")
    )
    stays = Ranked(Candidate("c", "ns/c", 4, True, {}), None, 0)
    crossing = Crossing(HARD, SignalObservation(600, 8000, 85.0), 80.0)
    cleared = (Reclaim.IMAGES,)
    done = (
        EvictionRecord(1085.0, crossing, reclaimed=cleared),
        EvictionRecord(1086.0, crossing, (first, stays), reclaimed=cleared, helped=True),
        EvictionRecord(1087.0, crossing, (first, stays, second), first),
        EvictionRecord(1088.0, crossing, (first, stays), first),
    )
    a, b = (RankingEntry("ns", uid, uid, 3, False, 40, 30, True) for uid in ("a", "b"))
    c = RankingEntry("ns", "c", "c", 4, True, None, 0, False)
    numbers = {
        "signal": Signal.MEMORY,
        "threshold": 1000,
        "available": 600,
        "capacity": 8000,
        "grace": 0.0,
        "since": 1080.0,
    }
    nobody: dict[str, Any] = {"pod": None, "next": None, "reclaimed": cleared, **numbers}
    evicted: dict[str, Any] = {
        "pod": a,
        "reclaimed": (),
        "outcome": EvictionOutcome.EVICTED,
        **numbers,
    }
    assert report(UNDER, EvictionState(), {}, done, now=100.0, wall=1100.0).evictions == (
        EvictionReport(at=1085.0, outcome=EvictionOutcome.RECLAIM_NOT_ENOUGH, ranking=(), **nobody),
        EvictionReport(at=1086.0, outcome=EvictionOutcome.RECLAIMED, ranking=(a, c), **nobody),
        EvictionReport(at=1087.0, ranking=(a, c, b), next=b, **evicted),
        EvictionReport(at=1088.0, ranking=(a, c), next=None, **evicted),
    )


# Limits of pods and thresholds of the node, decided in the same rounds, on virtual time.

ROUND_HARD = rules(
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


async def test_a_pod_over_its_limit_is_evicted_before_the_largest() -> None:
    node = Node(ROUND_HARD, [eater("large", disk=89 * GI), limited("over", "1Gi", 0, later=GI)])
    await node.runs(60)
    (only,) = node.evictions
    assert only.name == "over"
    assert 12 < only.at < 19, "the crossing is the reason to measure: the next time were 20"
    assert node.notified[0][1] == ("DiskPressure",)
    (eviction,) = node.keeper.done_for_limits
    assert eviction.pod.name == "over"


async def test_another_pod_is_evicted_when_that_is_not_enough() -> None:
    node = Node(
        ROUND_HARD,
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


async def test_memory_does_not_wait_for_pods_over_their_limit() -> None:
    node = Node(
        ROUND_HARD,
        [limited("over", "1Gi", 0, later=GI), eater("eater", memory_a_second=MEMORY / 18)],
    )
    node.layers_go_at = 45
    await node.runs(40)
    assert sorted(node.evicted) == ["eater", "over"]
    crossed = 18 * (MEMORY - GI) / MEMORY
    (at,) = (each.at for each in node.evictions if each.name == "eater")
    assert 0 <= at - crossed < 1


@pytest.mark.parametrize("measuring_s", [0.5, 3600.0])
async def test_waiting_for_a_measurement_is_bounded(measuring_s: float) -> None:
    node = Node(ROUND_HARD, [eater("large", disk=89 * GI), limited("small", "90Gi", 0, later=GI)])
    node.measuring_s = measuring_s
    await node.runs(60)
    (first, *_) = node.evictions
    assert first.name == "large"
    crossed = 13
    assert first.at - crossed < (LAYERS_S + 3 if measuring_s > 60 else 8)


async def test_pods_within_their_limits_are_not_measured_more_often() -> None:
    node = Node(ROUND_HARD, [eater("calm", disk=GI), limited("small", "30Gi", GI)])
    await node.runs(601)
    assert node.measured == 60
    assert node.evicted == []

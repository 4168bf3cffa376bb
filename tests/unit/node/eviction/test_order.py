"""The order in which pods would be evicted, and the position of a new pod."""

from __future__ import annotations

import pytest

from kubeletpy.node.eviction.decide import Layout, Signal
from kubeletpy.node.eviction.ranking import Candidate, DiskUse, Reclaim, Use
from kubeletpy.node.eviction.report import FIRST, EvictionOrder, orders
from tests.unit.node.eviction.machine import MEMORY, Eater, Machine, eater
from tests.unit.node.eviction.rules import GI, rules
from tests.unit.podworkers.builders import make_pod, make_static
from tests.virtual_time import on_virtual_time

BOTH = (Reclaim.CONTAINERS, Reclaim.IMAGES)


def pod(uid: str, used: int | None = None, request: int = 0, priority: int = 0) -> Candidate:
    """A pod that uses the same amount of memory, bytes, inodes and processes."""
    use = None if used is None else Use(used, used, DiskUse(layers=(used, used)))
    requested = {"memory": request, "ephemeral-storage": request} if request else {}
    return Candidate(uid, f"ns/{uid}", priority, False, requested, use=use)


def critical(uid: str) -> Candidate:
    return Candidate(uid, f"ns/{uid}", 2_000_000_000, True, {}, use=Use(999))


PODS = [pod("within", 100, 100), pod("over", 200, 100), critical("dns"), pod("high", 900, 1, 5)]


def names(order: EvictionOrder) -> list[str]:
    return [f"{each.number} {each.place.name}" for each in order.pods]


def the(signal: Signal, requested: Candidate, layout: Layout = Layout.ONE) -> EvictionOrder:
    (found,) = orders([signal], layout, PODS, requested=requested)
    return found


def test_signals_of_one_order_share_it() -> None:
    found = orders(Signal, Layout.ONE, PODS)
    assert [(each.signals, each.reclaims) for each in found] == [
        ((Signal.MEMORY, Signal.ALLOCATABLE_MEMORY), ()),
        ((Signal.NODEFS, Signal.IMAGEFS, Signal.CONTAINERFS), BOTH),
        ((Signal.NODEFS_INODES, Signal.IMAGEFS_INODES, Signal.CONTAINERFS_INODES), BOTH),
        ((Signal.PIDS,), ()),
    ]
    memory, _, _, tasks = found
    assert names(memory) == ["1 over", "2 high", "3 within"]
    assert names(tasks) == ["1 over", "2 within", "3 high"]
    assert (memory.count, memory.stay, memory.crossed, memory.beyond) == (3, 1, False, None)
    assert not any(each.requested or each.assumed for each in memory.pods)


def test_crossed_thresholds_come_first() -> None:
    found = orders([Signal.MEMORY, Signal.PIDS], None, PODS, crossed=[Signal.PIDS])
    assert [(each.signals, each.crossed) for each in found] == [
        ((Signal.PIDS,), True),
        ((Signal.MEMORY,), False),
    ]


def test_without_a_layout_there_is_no_order_for_the_disk() -> None:
    assert [each.signals for each in orders([*Signal], None, PODS)] == [
        (Signal.MEMORY, Signal.ALLOCATABLE_MEMORY),
        (Signal.PIDS,),
    ]


@pytest.mark.parametrize("signal", [Signal.MEMORY, Signal.NODEFS])
@pytest.mark.parametrize(
    ("requested", "expected", "beyond"),
    [
        # within its request it is behind all that exceed theirs
        (pod("new", request=300), ["1 over", "2 high", "3 new", "4 within"], 2),
        (pod("new", request=300, priority=9), ["1 over", "2 high", "3 within", "4 new"], 3),
        # without a request any use exceeds it
        (pod("new"), ["1 over", "2 new", "3 high", "4 within"], None),
        (pod("new", priority=-1), ["1 new", "2 over", "3 high", "4 within"], None),
    ],
)
def test_a_new_pod(
    signal: Signal, requested: Candidate, expected: list[str], beyond: int | None
) -> None:
    found = the(signal, requested)
    assert (names(found), found.beyond) == (expected, beyond)
    (mine,) = [each for each in found.pods if each.requested]
    assert (mine.place.name, mine.assumed) == ("new", True)


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("signal", [Signal.NODEFS, Signal.IMAGEFS, Signal.CONTAINERFS])
def test_the_use_of_a_new_pod_counts_once(signal: Signal, layout: Layout) -> None:
    (mine,) = [each for each in the(signal, pod("new", request=300), layout).pods if each.requested]
    counted = signal is not Signal.IMAGEFS or layout is not Layout.SPLIT
    assert mine.place.used == (300 if counted else 0)


def test_a_running_pod_with_other_requests() -> None:
    found = the(Signal.MEMORY, pod("over", 200, 900))
    assert names(found) == ["1 high", "2 within", "3 over"]
    assert [(each.requested, each.assumed) for each in found.pods][2] == (True, False)
    assert found.beyond is None
    assert found.count == 3


def test_a_critical_pod_has_no_position() -> None:
    found = the(Signal.MEMORY, critical("new"))
    assert names(found) == ["1 over", "2 high", "3 within"]
    assert (found.requested_stays, found.stay, found.beyond) == (True, 1, None)


def test_the_first_pods_and_the_requested_one_are_named() -> None:
    many = [pod(f"p{n:02}", 1000 - n, 100) for n in range(20)]
    (found,) = orders([Signal.MEMORY], None, many, requested=pod("new", request=300))
    assert names(found) == [*(f"{n + 1} p{n:02}" for n in range(FIRST)), "21 new"]
    assert (found.count, found.beyond) == (21, 21)


HARD = rules(evictionHard={"memory.available": "1Gi", "nodefs.available": "10Gi"})


@on_virtual_time
async def test_the_first_of_the_order_is_evicted() -> None:
    eaters = [
        eater("calm", memory=GI),
        eater("eater", memory=2 * GI, memory_a_second=GI // 4),
        Eater(make_static("static"), memory=MEMORY // 4),
    ]
    machine = Machine(HARD, eaters)
    before = await machine.keeper.order()
    assert [each.crossed for each in before] == [False] * len(before)
    assert names(before[0])[0] == "1 eater"
    assert before[0].stay == 1
    assert machine.evictions == [], "a query changes nothing"
    await machine.runs(120)
    assert machine.evicted == ["eater"]


@on_virtual_time
async def test_an_order_with_a_pod_more_and_others_removed() -> None:
    machine = Machine(HARD, [eater("calm", memory=GI), eater("low", memory=2 * GI)])
    low = next(each.pod for each in machine.eaters if each.pod.name == "low")
    found = await machine.keeper.order(make_pod("new"), {low.uid})
    assert names(found[0]) == ["1 calm", "2 new"]


@on_virtual_time
async def test_a_crossed_threshold_is_marked() -> None:
    machine = Machine(HARD, [Eater(make_static("only"), memory=MEMORY - GI // 2)])
    await machine.runs(30)
    found = await machine.keeper.order()
    assert found[0].crossed
    assert Signal.MEMORY in found[0].signals
    assert (found[0].pods, found[0].count, found[0].stay) == ((), 0, 1)

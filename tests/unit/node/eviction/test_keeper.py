"""Evictions on a machine that runs short, on virtual time: which pods, when, which conditions."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeletpy.node.eviction.decide import Layout, Observations, Signal, SignalObservation
from kubeletpy.node.eviction.ranking import Candidate, DiskUse, Reclaim, Use
from kubeletpy.node.eviction.report import FIRST, EvictionOrder, orders
from kubeletpy.podworkers.records import KillOptions
from tests.kit.eviction import GI, MEMORY, MI, Eater, Machine, eater, rules
from tests.kit.pods import make_pod, make_static

pytestmark = pytest.mark.virtual_time

HARD = rules(
    evictionHard={"memory.available": "1Gi", "nodefs.available": "10Gi", "pid.available": "1000"},
    enforceNodeAllocatable=[],
)
SOFT = rules(
    evictionHard={"memory.available": "512Mi"},
    evictionSoft={"memory.available": "2Gi"},
    evictionSoftGracePeriod={"memory.available": "30s"},
    evictionMaxPodGracePeriod=60,
    enforceNodeAllocatable=[],
)


@pytest.mark.parametrize("a_second", [10 * MI, 256 * MI, GI, 2 * GI])
async def test_the_growing_pod_is_evicted_within_a_second_of_the_crossing(a_second: int) -> None:
    machine = Machine(HARD, [eater("calm", memory=GI), eater("eater", memory_a_second=a_second)])
    crossed = (MEMORY - 2 * GI) / a_second
    await machine.runs(crossed + 60)
    (only,) = machine.evictions
    assert only.name == "eater"
    assert 0 <= only.at - crossed < 1
    assert only.options.grace_override == 1
    assert only.options.evict
    assert machine.truth()[Signal.MEMORY].available == MEMORY - GI
    reasons = [reason for reason, _, _ in machine.events]
    assert reasons == ["EvictionThresholdMet", "Evicted"]
    assert machine.events[0][1] == "Attempting to reclaim memory"
    assert machine.events[1][2] == {
        "offending_containers": "",
        "offending_containers_usage": "",
        "starved_resource": "memory",
    }


async def test_a_quiet_node_is_measured_every_ten_seconds() -> None:
    machine = Machine(rules(), [eater("calm", memory=GI)])
    await machine.runs(601)
    assert len(machine.looks) <= 62


async def test_the_condition_is_reported_and_held() -> None:
    machine = Machine(HARD, [eater("eater", memory=MEMORY - GI + 1)])
    await machine.runs(310)
    (raised, one), (ended, none) = machine.notified
    assert (one, none) == (("MemoryPressure",), ())
    assert raised < 1
    assert 300 <= ended - raised < 303


async def test_disk_is_reclaimed_before_any_eviction() -> None:
    machine = Machine(HARD, [eater("writer", disk=80 * GI)], garbage=15 * GI)
    await machine.runs(60)
    assert machine.evicted == []
    assert [what for _, what in machine.reclaims] == [Reclaim.CONTAINERS, Reclaim.IMAGES]
    assert machine.notified[0][1] == ("DiskPressure",)
    (done,) = machine.keeper.done
    assert done.helped
    assert done.pod is None


async def test_a_pod_is_evicted_when_reclaiming_does_not_help() -> None:
    machine = Machine(
        HARD, [eater("writer", disk=85 * GI), eater("other", disk=5 * GI + 1)], garbage=GI
    )
    await machine.runs(60)
    assert machine.evicted == ["writer"]
    assert len(machine.reclaims) == 2


async def test_memory_is_not_kept_waiting_by_a_reclaim_of_disk() -> None:
    machine = Machine(
        HARD, [eater("writer", disk=91 * GI), eater("eater", memory_a_second=GI)], garbage=GI
    )
    slow = asyncio.Event()

    async def reclaim(what: Reclaim) -> bool:
        return await slow.wait()

    machine.reclaim = reclaim  # type: ignore[method-assign]
    machine.new_keeper()
    await machine.runs(40)
    assert machine.evicted == ["eater"]


async def test_the_keeper_ends_after_its_reclaim_has() -> None:
    machine = Machine(HARD, [eater("writer", disk=91 * GI)], garbage=GI)
    saved: list[float] = []

    async def reclaim(what: Reclaim) -> bool:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(2)
            saved.append(machine.now())
        return False

    machine.reclaim = reclaim  # type: ignore[method-assign]
    machine.new_keeper()
    await machine.runs(10)
    assert saved == [machine.now()]


async def test_disks_of_unknown_layout_cause_no_eviction() -> None:
    machine = Machine(HARD, [eater("writer", disk=95 * GI)], where=None)
    await machine.runs(60)
    assert (machine.evicted, machine.reclaims) == ([], [])
    assert machine.notified[0][1] == ("DiskPressure",)


async def test_with_images_apart_nothing_is_reclaimed_for_the_node() -> None:
    machine = Machine(HARD, [eater("writer", disk=95 * GI)], where=Layout.APART)
    await machine.runs(30)
    assert machine.evicted == ["writer"]
    assert machine.reclaims == []


async def test_process_numbers() -> None:
    machine = Machine(HARD, [eater("calm", tasks=50), eater("forker", tasks_a_second=900)])
    await machine.runs(60)
    assert machine.evicted == ["forker"]
    assert machine.notified[0][1] == ("PIDPressure",)


async def test_never_a_static_or_critical_pod() -> None:
    critical = eater("critical", priority=2_000_000_000, memory=15 * GI)
    static = Eater(make_static("static"), memory=GI)
    machine = Machine(HARD, [critical, static])
    await machine.runs(120)
    assert machine.evicted == []


async def test_no_second_eviction_while_the_first_pod_ends() -> None:
    first = eater("first", memory=10 * GI, ends_after=1.0)
    machine = Machine(HARD, [first, eater("second", memory=5 * GI + 1)])
    await machine.runs(120)
    assert machine.evicted == ["first"]


async def test_after_a_pod_that_does_not_end_the_next_is_evicted() -> None:
    stuck = eater("stuck", memory=10 * GI, ends_after=1e6)
    machine = Machine(HARD, [stuck, eater("second", memory=6 * GI)])
    await machine.runs(120)
    assert machine.evicted == ["stuck", "second"]
    assert machine.evictions[1].at - machine.evictions[0].at >= 30


async def test_a_soft_threshold_gives_a_pod_its_grace() -> None:
    machine = Machine(SOFT, [eater("eater", memory=15 * GI, ends_after=20)])
    await machine.runs(100)
    (only,) = machine.evictions
    assert only.options.grace_override == 30, "the pod's own, below evictionMaxPodGracePeriod"
    assert 30 <= only.at < 33
    assert machine.notified[0][0] < 1, "the condition is reported at once"


async def test_a_hard_threshold_shortens_the_grace_of_a_soft_one() -> None:
    growing = eater("eater", memory=14 * GI + 100 * MI, ends_after=30)
    growing.memory_a_second = 40 * MI
    machine = Machine(SOFT, [growing])
    await machine.runs(100)
    assert [each.options.grace_override for each in machine.evictions] == [30, 1]
    assert growing.stopped_at is not None
    assert growing.stopped_at - machine.evictions[1].at == pytest.approx(1.0)


async def test_jumping_or_impossible_numbers_cause_no_eviction() -> None:
    machine = Machine(HARD, [eater("calm", memory=GI)])
    chance = random.Random(7)

    def lie(seen: Observations) -> Observations:
        now = asyncio.get_running_loop().time()
        kind = chance.choice(["jump", "negative", "gone", "old", "whole", "true"])
        if kind == "jump" and lie_before[-1] != "jump":
            lie_before.append(kind)
            return {s: SignalObservation(0, each.capacity, now) for s, each in seen.items()}
        lie_before.append(kind)
        return {
            "negative": {s: SignalObservation(-5, each.capacity, now) for s, each in seen.items()},
            "gone": {},
            "old": {s: SignalObservation(0, each.capacity, now - 100) for s, each in seen.items()},
            "whole": {s: SignalObservation(0, 0, now) for s, each in seen.items()},
        }.get(kind, seen)

    lie_before = [""]
    machine.lie = lie
    await machine.runs(3600)
    assert machine.evicted == []
    assert machine.notified == []
    assert len(lie_before) > 300


async def test_a_failed_round_is_not_the_last() -> None:
    machine = Machine(HARD, [eater("eater", memory=MEMORY)])
    failures = [OSError("proc"), OSError("proc")]

    async def kill(pod: object, options: KillOptions) -> None:
        if failures:
            raise failures.pop()
        await Machine.kill(machine, machine.eaters[0].pod, options)

    machine.kill = kill  # type: ignore[method-assign]
    machine.new_keeper()
    await machine.runs(60)
    assert machine.evicted == ["eater"]


@pytest.mark.parametrize("seed", range(40))
async def test_any_machine(seed: int) -> None:
    """Invariants for pods of all kinds on a machine whose agent is killed now and then."""
    chance = random.Random(seed)
    eaters = [_drawn(chance, number) for number in range(chance.randint(1, 12))]
    machine = Machine(HARD, eaters, garbage=chance.randint(0, 40) * GI)
    for _ in range(chance.randint(1, 4)):
        await machine.runs(chance.uniform(0.01, 60))
        machine.new_keeper()
    await machine.runs(900)
    for one in machine.evictions:
        crossed = [
            t.signal
            for t in HARD.thresholds
            if one.seen[t.signal].available < t.amount.in_units(one.seen[t.signal].capacity)
        ]
        assert crossed, "never above the thresholds"
        firsts = set()
        for signal in crossed:
            left = [key for key in one.order[signal] if not _critical(machine, key)]
            firsts.add(left[0])
        assert f"default/{one.name}" in firsts, "never the wrong one first"
    truth = machine.truth()
    blameless = all(_critical(machine, each.pod.key) for each in machine.running())
    for threshold in HARD.thresholds:
        seen = truth[threshold.signal]
        assert blameless or seen.available >= threshold.amount.in_units(seen.capacity), (
            "it recovers"
        )
    changes = [notified for _, notified in machine.notified]
    assert len(changes) <= 2 * (len(machine.evictions) + len(machine.reclaims) + 8)


def _critical(machine: Machine, key: str) -> bool:
    (pod,) = (each.pod for each in machine.eaters if each.pod.key == key)
    return (pod.spec.get("priority") or 0) >= 2_000_000_000


def _drawn(chance: random.Random, number: int) -> Eater:
    rates = {
        "memory_a_second": chance.choice([0, 0, 1, 20, 300]) * MI,
        "disk_a_second": chance.choice([0, 0, 10, 200]) * MI,
        "tasks_a_second": chance.choice([0, 0, 0, 5, 400]),
    }
    critical = chance.random() < 0.1
    return eater(
        f"p{number}",
        priority=2_000_000_000 if critical else chance.choice([0, 0, 5]),
        request=chance.choice([0, GI]),
        memory=chance.randint(0, 3 * GI),
        ends_after=chance.choice([0.0, 0.5, 1.0]),
        **({} if critical else rates),
    )


# -- restarts ------------------------------------------------------------------------------------


def reported(*conditions: str) -> Any:
    return {
        "metadata": {"name": "n1"},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PIDPressure", "status": "False"},
                *({"type": each, "status": "True"} for each in conditions),
            ]
        },
    }


async def test_a_condition_outlives_the_agent_by_a_transition_period() -> None:
    machine = Machine(HARD, [eater("calm", memory=GI)])
    machine.keeper.node_reported(reported("DiskPressure"))
    assert machine.keeper.conditions == ("DiskPressure",)
    await machine.runs(310)
    ((ended, none),) = machine.notified
    assert none == ()
    assert 300 <= ended < 302


async def test_only_conditions_of_the_last_agent_are_restored() -> None:
    machine = Machine(HARD, [eater("calm", memory=GI)])
    machine.keeper.node_reported(reported())
    machine.keeper.node_reported(reported("MemoryPressure"))
    assert machine.keeper.conditions == ()


async def test_layers_of_an_evicted_pod_are_awaited_before_the_next_eviction() -> None:
    machine = Machine(
        HARD, [eater("first", disk=50 * GI), eater("second", disk=45 * GI)], layers_go_at=20.0
    )
    eater_of_layers = machine.eaters[0]
    machine.layers = lambda: 50 * GI if eater_of_layers.killed_at and machine.now() < 20 else 0
    await machine.runs(60)
    assert machine.evicted == ["first"]


async def test_waiting_for_layers_of_an_evicted_pod_is_bounded() -> None:
    machine = Machine(
        HARD, [eater("first", disk=50 * GI), eater("second", disk=45 * GI)], layers_go_at=1e9
    )
    machine.layers = lambda: 50 * GI if machine.eaters[0].killed_at is not None else 0
    await machine.runs(60)
    assert machine.evicted == ["first", "second"]
    assert machine.evictions[1].at - machine.evictions[0].at >= 30


@pytest.mark.parametrize(("every", "first"), [(10.0, "fills"), (1000.0, "calm")])
async def test_old_layer_sizes_delay_evictions_for_a_while(every: float, first: str) -> None:
    """A runtime that no longer measures must not keep the node full permanently."""
    fills = eater("fills", disk_a_second=10 * GI, counted_every=every, started=4.0)
    machine = Machine(HARD, [eater("calm", disk=GI, counted_every=every), fills])
    await machine.runs(60)
    assert machine.evicted[0] == first
    crossed = 4.0 + 89 / 10
    waited = machine.evictions[0].at - crossed
    assert 5 < waited < 11 if first == "fills" else 12 <= waited < 16


async def test_a_pod_larger_than_the_recent_growth_is_evicted_at_once() -> None:
    heavy = eater("heavy", disk=60 * GI, counted_every=1000.0)
    fills = eater("fills", disk_a_second=4 * GI, counted_every=1000.0)
    machine = Machine(HARD, [heavy, fills])
    await machine.runs(13)
    assert machine.evicted == ["heavy"]


# -- space that is freed late ----------------------------------------------------------------------


def leaves(machine: Machine, seconds: float) -> None:
    """Keeps the first pod's layer on the disk for the given time after the pod."""
    first = machine.eaters[0]

    def left() -> int:
        stopped = first.stopped_at
        held = stopped is not None and stopped <= machine.now() < stopped + seconds
        return first.on_disk(stopped or 0) if held else 0

    machine.layers = left


@pytest.mark.parametrize("where", [Layout.ONE, Layout.SPLIT])
@pytest.mark.parametrize("seconds", [0.0, 0.3, 2.0, 9.0])
async def test_a_layer_removed_after_its_container_is_awaited(
    seconds: float, where: Layout
) -> None:
    machine = Machine(
        HARD,
        [eater("first", disk=50 * GI, counted_every=1.0), eater("second", disk=45 * GI)],
        where=where,
    )
    leaves(machine, seconds)
    await machine.runs(60)
    assert machine.evicted == ["first"]


async def test_waiting_for_a_layer_that_is_never_removed_is_bounded() -> None:
    machine = Machine(
        HARD, [eater("first", disk=50 * GI, counted_every=1.0), eater("second", disk=45 * GI)]
    )
    leaves(machine, 1e6)
    await machine.runs(60)
    assert machine.evicted == ["first", "second"]
    between = machine.evictions[1].at - machine.evictions[0].at
    assert 15 <= between < 16, "its second of grace, ten of patience, two reclaims"


async def test_a_layer_that_frees_too_little_is_not_awaited() -> None:
    """The layer frees too little: the next eviction need not wait for it."""
    machine = Machine(
        HARD,
        [eater("first", disk=3 * GI, counted_every=1.0), eater("second", disk=94 * GI, priority=5)],
    )
    leaves(machine, 1e6)
    await machine.runs(60)
    assert machine.evicted == ["first", "second"]
    between = machine.evictions[1].at - machine.evictions[0].at
    assert between < 1 + 4 + 1, "its second of grace, two reclaims, and hardly more"


@pytest.mark.parametrize(
    ("freed_later", "begins", "evicted"),
    [
        (True, 19, []),
        (False, 19, ["writer"]),
        (False, 0, []),  # an earlier agent may have evicted a pod: no eviction at the start
    ],
)
async def test_garbage_that_is_freed_late(
    freed_later: bool, begins: float, evicted: list[str]
) -> None:
    machine = Machine(
        HARD,
        [eater("writer", disk=85 * GI, counted_every=1.0), eater("other", disk=GI)],
        freed_later=freed_later,
    )
    machine.layers = lambda: 10 * GI if begins <= machine.now() <= begins + 6 else 0
    await machine.runs(60)
    assert machine.evicted == evicted


async def test_the_api_is_not_awaited_while_the_disk_is_full() -> None:
    """No other pod is evicted, because the first pod's files are removed unreported in the end."""
    machine = Machine(
        HARD, [eater("first", disk=50 * GI), eater("second", disk=45 * GI)], reported=False
    )
    first = machine.eaters[0]
    machine.layers = lambda: (
        50 * GI if first.killed_at is not None and not any(u for _, u in machine.clears) else 0
    )
    await machine.runs(60)
    assert machine.evicted == ["first"]
    assert first.stopped_at is not None
    waited = next(at for at, unreported in machine.clears if unreported) - first.stopped_at
    assert 5 <= waited < 6.5


async def test_the_disk_waits_for_a_pod_evicted_for_memory() -> None:
    both = eater(
        "both", memory=8 * GI, memory_a_second=GI, disk=9 * GI, disk_a_second=GI, started=12
    )
    both.ends_after = 70
    machine = Machine(HARD, [eater("large", disk=68 * GI), both])
    await machine.runs(60)
    first, second = machine.evictions
    assert (first.name, second.name) == ("both", "large")
    assert (19 < first.at < 20) and first.at + 30 <= second.at, "it may be enough for the disk too"
    (crossed,) = [
        at for at, notified in machine.notified if notified == ("MemoryPressure", "DiskPressure")
    ]
    assert crossed < 30


# The order in which pods would be evicted, and the position of a new pod.

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


ORDER_HARD = rules(evictionHard={"memory.available": "1Gi", "nodefs.available": "10Gi"})


async def test_the_first_of_the_order_is_evicted() -> None:
    eaters = [
        eater("calm", memory=GI),
        eater("eater", memory=2 * GI, memory_a_second=GI // 4),
        Eater(make_static("static"), memory=MEMORY // 4),
    ]
    machine = Machine(ORDER_HARD, eaters)
    before = await machine.keeper.order()
    assert [each.crossed for each in before] == [False] * len(before)
    assert names(before[0])[0] == "1 eater"
    assert before[0].stay == 1
    assert machine.evictions == [], "a query changes nothing"
    await machine.runs(120)
    assert machine.evicted == ["eater"]


async def test_an_order_with_a_pod_more_and_others_removed() -> None:
    machine = Machine(ORDER_HARD, [eater("calm", memory=GI), eater("low", memory=2 * GI)])
    low = next(each.pod for each in machine.eaters if each.pod.name == "low")
    found = await machine.keeper.order(make_pod("new"), {low.uid})
    assert names(found[0]) == ["1 calm", "2 new"]


async def test_a_crossed_threshold_is_marked() -> None:
    machine = Machine(ORDER_HARD, [Eater(make_static("only"), memory=MEMORY - GI // 2)])
    await machine.runs(30)
    found = await machine.keeper.order()
    assert found[0].crossed
    assert Signal.MEMORY in found[0].signals
    assert (found[0].pods, found[0].count, found[0].stay) == ((), 0, 1)

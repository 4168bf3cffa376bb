"""Round after round: thresholds crossed, conditions, actions (behaviour-resources.md, rc)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.node.eviction.decide import (
    DISK,
    ORDER,
    Condition,
    Doubt,
    EvictionState,
    Layout,
    LocalStorageEviction,
    Offender,
    Share,
    Signal,
    SignalObservation,
    believable,
    condition_of,
    decide,
    hold_ends,
    is_well,
    layout_of,
    relieved,
    resource_of,
    restored,
)
from kubeletpy.node.eviction.ranking import Reclaim, counts_layers, reclaims
from tests.kit.eviction import GI, MI, Rounds, rules

HARD = rules(
    evictionHard={"memory.available": "1Gi", "nodefs.available": "10%"},
    evictionMinimumReclaim={"memory.available": "512Mi"},
    enforceNodeAllocatable=[],
)
SOFT = rules(
    evictionHard={"memory.available": "1Gi"},
    evictionSoft={"memory.available": "2Gi"},
    evictionSoftGracePeriod={"memory.available": "30s"},
    enforceNodeAllocatable=[],
)


def test_a_crossing_counts_after_two_observations() -> None:
    rounds = Rounds(HARD)
    first = rounds.observe(MEMORY=GI - 1)
    assert (first.act, first.unsure, first.state.conditions) == (None, True, ())
    second = rounds.observe(0.05, MEMORY=GI - 1)
    assert second.act is not None
    assert second.act.threshold.signal is Signal.MEMORY
    assert second.act.quantity == GI
    assert second.state.conditions == (Condition.MEMORY,)
    assert not second.unsure


def test_a_jumping_number_causes_no_eviction() -> None:
    rounds = Rounds(HARD)
    for available in (0, 9 * GI) * 10:
        decision = rounds.observe(0.05, MEMORY=available)
        assert decision.act is None
        assert decision.state.conditions == ()


def test_a_jump_after_a_reclaim_that_helped_is_confirmed_first() -> None:
    rounds = Rounds(HARD)
    assert rounds.confirm(MEMORY=9 * GI, NODEFS=GI).act is not None
    few = rounds.state
    assert relieved(few, {}) == few, "nothing was measured"
    rounds.state = relieved(few, Rounds(HARD).observe(NODEFS=9 * GI).state.last)
    decision = rounds.observe(0.05, MEMORY=9 * GI, NODEFS=0)
    assert (decision.act, decision.unsure) == (None, True)
    assert decision.state.conditions == (Condition.DISK,), "it is held as ever"
    assert rounds.observe(0.05, MEMORY=9 * GI, NODEFS=0).act is not None


def test_exactly_the_threshold_is_enough() -> None:
    rounds = Rounds(HARD)
    assert rounds.confirm(MEMORY=GI, NODEFS=2 * GI).act is None


def test_memory_comes_before_disk() -> None:
    rounds = Rounds(HARD)
    decision = rounds.confirm(MEMORY=0, NODEFS=0)
    assert [c.threshold.signal for c in decision.all] == [Signal.MEMORY, Signal.NODEFS]
    assert decision.act is decision.all[0]
    assert decision.state.conditions == (Condition.MEMORY, Condition.DISK)


def test_a_crossing_lasts_until_the_minimum_is_reclaimed() -> None:
    rounds = Rounds(HARD)
    rounds.confirm(MEMORY=GI - 1)
    assert rounds.observe(MEMORY=GI + 512 * MI - 1).act is not None
    assert rounds.observe(MEMORY=GI + 512 * MI).act is None
    assert rounds.observe(MEMORY=GI + 512 * MI - 1).act is None, "from above it is not crossed"


def test_a_soft_threshold_sets_the_condition_at_once_and_acts_after_its_grace() -> None:
    rounds = Rounds(SOFT)
    decision = rounds.confirm(MEMORY=GI + 1)
    assert decision.act is None
    assert decision.state.conditions == (Condition.MEMORY,)
    assert rounds.observe(29.9, MEMORY=GI + 1).act is None
    acting = rounds.observe(0.2, MEMORY=GI + 1).act
    assert acting is not None
    assert not acting.threshold.hard


def test_a_clean_observation_resets_the_grace() -> None:
    rounds = Rounds(SOFT)
    rounds.confirm(MEMORY=GI + 1)
    rounds.observe(29, MEMORY=2 * GI)
    assert rounds.confirm(2, MEMORY=GI + 1).act is None


def test_a_soft_threshold_does_not_delay_the_hard_one() -> None:
    rounds = Rounds(SOFT)
    rounds.confirm(MEMORY=GI + 1)
    acting = rounds.confirm(1, MEMORY=GI - 1).act
    assert acting is not None
    assert acting.threshold.hard


def test_a_condition_is_held_for_the_transition_period() -> None:
    rounds = Rounds(HARD)
    rounds.confirm(MEMORY=0)
    since = rounds.state.since[Condition.MEMORY]
    assert rounds.observe(299, MEMORY=9 * GI).state.conditions == (Condition.MEMORY,)
    assert rounds.state.since[Condition.MEMORY] == since
    assert hold_ends(rounds.state, HARD, rounds.now) == 1.0
    assert rounds.observe(1, MEMORY=9 * GI).state.conditions == ()
    assert hold_ends(rounds.state, HARD, rounds.now) is None


@pytest.mark.parametrize(
    ("pressed", "left"),
    [
        ({}, None),
        ({Condition.MEMORY: 990.0, Condition.DISK: 995.0}, 290.0),
        ({Condition.MEMORY: 700.5}, 0.5),
        ({Condition.MEMORY: 700.0}, 0.0),
        ({Condition.MEMORY: 600.0, Condition.DISK: 995.0}, 0.0),
    ],
)
def test_when_a_condition_ends(pressed: dict[Condition, float], left: float | None) -> None:
    """With a transition period of 300 s."""
    assert hold_ends(EvictionState(pressed=pressed), HARD, 1000.0) == left


def test_a_signal_without_an_observation_is_not_crossed() -> None:
    rounds = Rounds(HARD)
    rounds.confirm(MEMORY=0)
    assert rounds.observe().act is None
    assert rounds.observe(MEMORY=0).act is None, "it begins anew"


def test_the_same_number_again_is_not_acted_on() -> None:
    rounds = Rounds(HARD)
    rounds.confirm(MEMORY=0)
    seen = {Signal.MEMORY: SignalObservation(0, 10 * GI, rounds.now)}
    assert decide(seen, HARD, rounds.state, rounds.now + 1, at_once=0).act is None


def test_a_node_is_well_when_the_minimum_is_reclaimed_too() -> None:
    def seen(memory: int, disk: int) -> dict[Signal, SignalObservation]:
        return {
            Signal.MEMORY: SignalObservation(memory, 10 * GI, 0.0),
            Signal.NODEFS: SignalObservation(disk, 10 * GI, 0.0),
        }

    well = seen(2 * GI, 2 * GI)
    assert is_well(well, HARD, Signal.NODEFS)
    assert not is_well(seen(GI + 1, 2 * GI), HARD, Signal.NODEFS)
    assert not is_well(seen(2 * GI, GI - 1), HARD, Signal.NODEFS)
    assert not is_well({Signal.MEMORY: well[Signal.MEMORY]}, HARD, Signal.NODEFS)
    assert is_well({Signal.NODEFS: well[Signal.NODEFS]}, HARD, Signal.NODEFS)


def test_impossible_numbers_are_ignored() -> None:
    found = {
        Signal.MEMORY: SignalObservation(-1, 10, 100.0),
        Signal.NODEFS: SignalObservation(0, 0, 100.0),
        Signal.NODEFS_INODES: SignalObservation(11, 10, 100.0),
        Signal.IMAGEFS: SignalObservation(1, 10, 84.0),
        Signal.IMAGEFS_INODES: SignalObservation(1, 10, 101.0),
        Signal.PIDS: SignalObservation(1, 10, 100.0),
    }
    seen = believable(found, 100.0)
    assert dict(seen.observations) == {Signal.PIDS: found[Signal.PIDS]}
    assert dict(seen.doubts) == {
        Signal.MEMORY: Doubt.NEGATIVE,
        Signal.NODEFS: Doubt.NO_CAPACITY,
        Signal.NODEFS_INODES: Doubt.TOO_MUCH,
        Signal.IMAGEFS: Doubt.STALE,
        Signal.IMAGEFS_INODES: Doubt.AHEAD,
    }


def test_the_layout_is_by_device_numbers() -> None:
    assert layout_of(1, 1, 1) is Layout.ONE
    assert layout_of(1, 2, 2) is Layout.APART
    assert layout_of(1, 2, 1) is Layout.SPLIT


@given(
    st.lists(
        st.tuples(
            st.floats(0.01, 20),
            st.dictionaries(
                st.sampled_from(["MEMORY", "NODEFS"]), st.integers(0, 10 * GI), max_size=2
            ),
        ),
        max_size=40,
    )
)
def test_any_history(looks_made: list[tuple[float, dict[str, int]]]) -> None:
    rounds = Rounds(SOFT)
    notified: dict[Condition, float] = {}
    for after, available in looks_made:
        before = rounds.state
        decision = rounds.observe(after, **available)
        for crossing in decision.all:
            threshold = crossing.threshold
            assert crossing.seen.available < crossing.quantity, "never above a threshold"
            assert threshold in before.suspected or threshold in before.first_seen
            assert rounds.now - crossing.since >= threshold.grace
        for condition in set(notified) - set(decision.state.conditions):
            assert rounds.now - notified.pop(condition) >= SOFT.transition, "no flapping"
        for condition in decision.state.conditions:
            notified.setdefault(condition, rounds.now)
            if decision.state.pressed[condition] == rounds.now:
                notified[condition] = rounds.now


def test_there_are_no_conditions_at_the_start() -> None:
    assert EvictionState().conditions == ()


def test_conditions_of_an_earlier_agent_last_for_a_transition_period() -> None:
    rounds = Rounds(rules(evictionHard={"memory.available": "1Gi"}))
    rounds.state = restored(rounds.state, [Condition.DISK], rounds.now)
    assert rounds.observe(10).state.conditions == (Condition.DISK,)
    assert rounds.observe(289).state.conditions == (Condition.DISK,)
    assert rounds.observe(1).state.conditions == ()


def test_present_conditions_are_not_restored() -> None:
    rounds = Rounds(rules(evictionHard={"memory.available": "1Gi"}))
    known = rounds.confirm(MEMORY=GI - 1).state
    assert restored(known, [Condition.MEMORY], rounds.now + 50) == known


def offender(uid: str) -> Offender:
    return Offender(
        uid, LocalStorageEviction("emptydirfs.limit", "too much", Share("emptyDir v", 2, 1))
    )


def test_pods_over_their_limit_are_evicted_first_and_only_the_disk_waits() -> None:
    seen = {
        Signal.MEMORY: SignalObservation(0, 16 * GI, 1),
        Signal.NODEFS: SignalObservation(0, 100 * GI, 1),
    }
    sure = decide(seen, HARD, EvictionState(), 1, at_once=0).state
    seen = {signal: SignalObservation(0, each.capacity, 2) for signal, each in seen.items()}
    over = [offender("a"), offender("b"), offender("c")]
    alone = decide(seen, HARD, sure, 2, at_once=0)
    assert [c.threshold.signal for c in alone.all] == [Signal.MEMORY, Signal.NODEFS]
    assert (alone.over, alone.held) == ((), ())
    for at_once, going in ((2, ["a", "b"]), (4, ["a", "b", "c"]), (0, []), (-1, [])):
        decision = decide(seen, HARD, sure, 2, over=over, at_once=at_once)
        assert [each.uid for each in decision.over] == going
        assert decision.act is not None
        assert [c.threshold.signal for c in decision.all] == [Signal.MEMORY]
        assert [c.threshold.signal for c in decision.held] == [Signal.NODEFS]
        assert decision.state == alone.state


# Condition, resource and reclaims of each signal, and which numbers are accepted.

BOTH, IMAGES, LAYERS = "containers images", "images", "containers"
# signal: condition, resource, and reclaims where both are on one disk, apart, split
SIGNALS = {
    Signal.MEMORY: ("MemoryPressure", "memory", "", "", ""),
    Signal.ALLOCATABLE_MEMORY: ("MemoryPressure", "memory", "", "", ""),
    Signal.NODEFS: ("DiskPressure", "ephemeral-storage", BOTH, "", LAYERS),
    Signal.NODEFS_INODES: ("DiskPressure", "inodes", BOTH, "", LAYERS),
    Signal.IMAGEFS: ("DiskPressure", "ephemeral-storage", BOTH, BOTH, IMAGES),
    Signal.IMAGEFS_INODES: ("DiskPressure", "inodes", BOTH, BOTH, IMAGES),
    Signal.CONTAINERFS: ("DiskPressure", "ephemeral-storage", BOTH, BOTH, LAYERS),
    Signal.CONTAINERFS_INODES: ("DiskPressure", "inodes", BOTH, BOTH, LAYERS),
    Signal.PIDS: ("PIDPressure", "pids", "", "", ""),
}


@pytest.mark.parametrize("signal", Signal)
def test_condition_resource_and_reclaims_of_a_signal(signal: Signal) -> None:
    condition, resource, *helps = SIGNALS[signal]
    assert condition_of(signal) is Condition(condition)
    assert resource_of(signal) == resource
    assert (signal in DISK) == (condition == "DiskPressure")
    for layout, parts in zip((Layout.ONE, Layout.APART, Layout.SPLIT), helps, strict=True):
        expected = tuple(Reclaim(word) for word in parts.split())
        assert reclaims(signal, layout) == expected
        if signal in DISK:
            assert counts_layers(signal, layout) == (Reclaim.CONTAINERS in expected)


def test_memory_comes_first_and_tasks_last() -> None:
    assert sorted(Signal, key=ORDER.__getitem__) == list(SIGNALS)


@pytest.mark.parametrize(
    ("node", "images", "layers", "expected"),
    [
        (1, 1, 1, Layout.ONE),
        (1, 1, 2, Layout.ONE),
        (1, 2, 2, Layout.APART),
        (1, 2, 3, Layout.APART),
        (1, 2, 1, Layout.SPLIT),
    ],
)
def test_where_images_and_layers_are(node: int, images: int, layers: int, expected: Layout) -> None:
    assert layout_of(node, images, layers) is expected


@pytest.mark.parametrize(
    ("available", "capacity", "at", "doubt"),
    [
        (0, 1, 100.0, None),
        (1, 1, 100.0, None),
        (-1, 1, 100.0, Doubt.NEGATIVE),
        (0, 0, 100.0, Doubt.NO_CAPACITY),
        (0, -1, 100.0, Doubt.NO_CAPACITY),
        (2, 1, 100.0, Doubt.TOO_MUCH),
        (0, 1, 100.1, Doubt.AHEAD),
        (0, 1, 85.0, None),
        (0, 1, 84.9, Doubt.STALE),
    ],
)
def test_impossible_numbers_are_not_accepted(
    available: int, capacity: int, at: float, doubt: Doubt | None
) -> None:
    fine = SignalObservation(5, 10, 100.0)
    supplied = SignalObservation(available, capacity, at)
    seen = believable({Signal.MEMORY: supplied, Signal.PIDS: fine}, 100.0)
    if doubt is None:
        assert (seen.observations, seen.doubts) == (
            {Signal.MEMORY: supplied, Signal.PIDS: fine},
            {},
        )
    else:
        assert (seen.observations, seen.doubts) == ({Signal.PIDS: fine}, {Signal.MEMORY: doubt})

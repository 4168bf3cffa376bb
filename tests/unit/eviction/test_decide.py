"""Look after look: what is crossed, told and acted on (behaviour-resources.md, rc)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.eviction.decide import EvictionState, decide, hold_ends, is_well, restored
from kubeletpy.eviction.local_storage import LocalStorageEviction, Offender, Share
from kubeletpy.eviction.signals import (
    Condition,
    Doubt,
    Layout,
    Signal,
    SignalObservation,
    believable,
    layout_of,
)
from tests.unit.eviction.rules import GI, MI, Looks, rules

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


def test_one_look_is_not_believed_two_are() -> None:
    looks = Looks(HARD)
    first = looks.look(MEMORY=GI - 1)
    assert (first.act, first.unsure, first.state.conditions) == (None, True, ())
    second = looks.look(0.05, MEMORY=GI - 1)
    assert second.act is not None
    assert second.act.threshold.signal is Signal.MEMORY
    assert second.act.quantity == GI
    assert second.state.conditions == (Condition.MEMORY,)
    assert not second.unsure


def test_a_number_that_jumps_evicts_nobody() -> None:
    looks = Looks(HARD)
    for available in (0, 9 * GI) * 10:
        decision = looks.look(0.05, MEMORY=available)
        assert decision.act is None
        assert decision.state.conditions == ()


def test_exactly_the_threshold_is_enough() -> None:
    looks = Looks(HARD)
    assert looks.sure(MEMORY=GI, NODEFS=2 * GI).act is None


def test_memory_comes_before_disk() -> None:
    looks = Looks(HARD)
    decision = looks.sure(MEMORY=0, NODEFS=0)
    assert [c.threshold.signal for c in decision.all] == [Signal.MEMORY, Signal.NODEFS]
    assert decision.act is decision.all[0]
    assert decision.state.conditions == (Condition.MEMORY, Condition.DISK)


def test_what_was_acted_on_counts_until_the_minimum_is_reclaimed() -> None:
    looks = Looks(HARD)
    looks.sure(MEMORY=GI - 1)
    assert looks.look(MEMORY=GI + 512 * MI - 1).act is not None
    assert looks.look(MEMORY=GI + 512 * MI).act is None
    assert looks.look(MEMORY=GI + 512 * MI - 1).act is None, "from above it is not crossed"


def test_a_soft_threshold_tells_at_once_and_acts_when_its_grace_is_over() -> None:
    looks = Looks(SOFT)
    decision = looks.sure(MEMORY=GI + 1)
    assert decision.act is None
    assert decision.state.conditions == (Condition.MEMORY,)
    assert looks.look(29.9, MEMORY=GI + 1).act is None
    acting = looks.look(0.2, MEMORY=GI + 1).act
    assert acting is not None
    assert not acting.threshold.hard


def test_a_clean_look_forgets_the_grace() -> None:
    looks = Looks(SOFT)
    looks.sure(MEMORY=GI + 1)
    looks.look(29, MEMORY=2 * GI)
    assert looks.sure(2, MEMORY=GI + 1).act is None


def test_a_soft_one_does_not_hold_the_hard_one_up() -> None:
    looks = Looks(SOFT)
    looks.sure(MEMORY=GI + 1)
    acting = looks.sure(1, MEMORY=GI - 1).act
    assert acting is not None
    assert acting.threshold.hard


def test_a_condition_is_held_for_the_transition_period() -> None:
    looks = Looks(HARD)
    looks.sure(MEMORY=0)
    since = looks.state.since[Condition.MEMORY]
    assert looks.look(299, MEMORY=9 * GI).state.conditions == (Condition.MEMORY,)
    assert looks.state.since[Condition.MEMORY] == since
    assert hold_ends(looks.state, HARD, looks.now) == 1.0
    assert looks.look(1, MEMORY=9 * GI).state.conditions == ()
    assert hold_ends(looks.state, HARD, looks.now) is None


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


def test_what_is_not_seen_is_not_crossed() -> None:
    looks = Looks(HARD)
    looks.sure(MEMORY=0)
    assert looks.look().act is None
    assert looks.look(MEMORY=0).act is None, "it begins anew"


def test_the_same_number_again_is_not_acted_on() -> None:
    looks = Looks(HARD)
    looks.sure(MEMORY=0)
    seen = {Signal.MEMORY: SignalObservation(0, 10 * GI, looks.now)}
    assert decide(seen, HARD, looks.state, looks.now + 1, at_once=0).act is None


def test_well_is_when_nothing_is_crossed_with_what_is_to_be_reclaimed() -> None:
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


def test_numbers_that_can_not_be_are_not_believed() -> None:
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
    looks = Looks(SOFT)
    told: dict[Condition, float] = {}
    for after, available in looks_made:
        before = looks.state
        decision = looks.look(after, **available)
        for crossing in decision.all:
            threshold = crossing.threshold
            assert crossing.seen.available < crossing.quantity, "never above a threshold"
            assert threshold in before.suspected or threshold in before.first_seen
            assert looks.now - crossing.since >= threshold.grace
        for condition in set(told) - set(decision.state.conditions):
            assert looks.now - told.pop(condition) >= SOFT.transition, "no flapping"
        for condition in decision.state.conditions:
            told.setdefault(condition, looks.now)
            if decision.state.pressed[condition] == looks.now:
                told[condition] = looks.now


def test_nothing_is_known_at_the_start() -> None:
    assert EvictionState().conditions == ()


def test_what_an_earlier_agent_told_is_held_for_a_transition_period() -> None:
    looks = Looks(rules(evictionHard={"memory.available": "1Gi"}))
    looks.state = restored(looks.state, [Condition.DISK], looks.now)
    assert looks.look(10).state.conditions == (Condition.DISK,)
    assert looks.look(289).state.conditions == (Condition.DISK,)
    assert looks.look(1).state.conditions == ()


def test_what_is_known_already_is_not_restored() -> None:
    looks = Looks(rules(evictionHard={"memory.available": "1Gi"}))
    known = looks.sure(MEMORY=GI - 1).state
    assert restored(known, [Condition.MEMORY], looks.now + 50) == known


def offender(uid: str) -> Offender:
    return Offender(
        uid, LocalStorageEviction("emptydirfs.limit", "too much", Share("emptyDir v", 2, 1))
    )


def test_pods_over_a_limit_of_their_own_go_first_and_only_the_disk_waits() -> None:
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

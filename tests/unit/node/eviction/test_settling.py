"""Tables: when a disk is judged again after an eviction or a reclaim."""

from __future__ import annotations

import pytest

from kubeletpy.node.eviction.decide import Amount, Layout, Signal, SignalObservation, Threshold
from kubeletpy.node.eviction.ranking import (
    EARLY_S,
    GARBAGE_S,
    LAYER_S,
    STILL_S,
    Awaited,
    Candidate,
    DiskUse,
    Ranked,
    Settling,
    Use,
    begun,
    freed_by,
    freed_by_reclaim,
    is_settled,
    may_be_settling,
    observed,
)

BYTES = Threshold(Signal.IMAGEFS, Amount(100))
MORE = Threshold(Signal.IMAGEFS, Amount(100), reclaim=Amount(50))
DISK = DiskUse(layers=(40, 4), logs=(20, 2), volumes=(10, 1), layers_at=7)


def seen(available: int) -> SignalObservation:
    return SignalObservation(available, 1000, 0.0)


@pytest.mark.parametrize(
    ("signal", "layout", "counted"),
    [
        (Signal.IMAGEFS, Layout.ONE, 50),
        (Signal.NODEFS, Layout.ONE, 50),
        (Signal.NODEFS_INODES, Layout.ONE, 5),
        (Signal.CONTAINERFS, Layout.ONE, 50),
        (Signal.IMAGEFS, Layout.APART, 40),
        (Signal.IMAGEFS_INODES, Layout.APART, 4),
        (Signal.CONTAINERFS_INODES, Layout.APART, 4),
        (Signal.NODEFS, Layout.APART, None),
        (Signal.NODEFS, Layout.SPLIT, 50),
        (Signal.CONTAINERFS, Layout.SPLIT, 50),
        (Signal.IMAGEFS, Layout.SPLIT, None),
    ],
)
def test_space_that_the_runtime_frees_after_a_pod(
    signal: Signal, layout: Layout, counted: int | None
) -> None:
    pod = Ranked(Candidate("u", "n/p", 0, critical=False, requests={}, use=Use(disk=DISK)), 0, 0)
    threshold = Threshold(signal, Amount(100))
    expected = None if counted is None else Awaited(threshold, counted, 3, LAYER_S)
    assert freed_by(pod, threshold, layout, 3) == expected


@pytest.mark.parametrize("use", [None, Use(disk=DiskUse(layers=(1, 1), layers_at=0))])
def test_unmeasured_layers_are_unknown(use: Use | None) -> None:
    pod = Ranked(Candidate("u", "n/p", 0, critical=False, requests={}, use=use), None, 0)
    assert freed_by(pod, BYTES, Layout.APART, 3) == Awaited(BYTES, None, 0, LAYER_S)


def test_evictions_of_an_earlier_agent_are_awaited() -> None:
    assert may_be_settling(LAYER_S - 0.1)
    assert not may_be_settling(LAYER_S)
    assert freed_by_reclaim(BYTES, EARLY_S - 0.1) == Awaited(BYTES, patience=LAYER_S)
    assert freed_by_reclaim(BYTES, EARLY_S) == Awaited(BYTES, patience=GARBAGE_S)


def test_growth_is_never_negative() -> None:
    pod = Ranked(Candidate("u", "n/p", 0, critical=False, requests={}, use=Use(disk=DISK)), 0, 0)
    assert freed_by(pod, BYTES, Layout.APART, -3) == Awaited(BYTES, 40, 0, LAYER_S)


@pytest.mark.parametrize(
    ("awaited", "least", "still_for", "available", "settled"),
    [
        # the node is well
        (Awaited(BYTES), 50, 0.0, 100, True),
        (Awaited(MORE), 50, 0.0, 149, False),
        (Awaited(MORE), 50, 0.0, 150, True),
        # it is well by what others freed; what is still to come may be needed again
        (Awaited(BYTES, 50, 0, LAYER_S), 100, LAYER_S - 0.1, 120, False),
        (Awaited(BYTES, 50, 0, LAYER_S), 100, LAYER_S, 120, True),
        (Awaited(BYTES, 50, 0, LAYER_S), 100, STILL_S, 145, True),
        # the size of garbage is unknown
        (Awaited(BYTES), 50, GARBAGE_S - 0.1, 50, False),
        (Awaited(BYTES), 50, GARBAGE_S, 50, True),
        # a layer that would suffice has freed nothing
        (Awaited(BYTES, 50, 0, LAYER_S), 50, LAYER_S - 0.1, 50, False),
        (Awaited(BYTES, 50, 0, LAYER_S), 50, LAYER_S, 50, True),
        # it would not suffice, except with what was written since the measurement
        (Awaited(BYTES, 49, 0, LAYER_S), 50, 0.0, 50, True),
        (Awaited(BYTES, 30, 19, LAYER_S), 50, 0.0, 50, True),
        (Awaited(BYTES, 30, 20, LAYER_S), 50, 0.0, 50, False),
        # freed space is not freed again
        (Awaited(BYTES, 60, 0, LAYER_S), 30, 0.0, 50, True),
        (Awaited(BYTES, 70, 0, LAYER_S), 30, 0.0, 50, False),
        (Awaited(BYTES, 10, 0, LAYER_S), 40, 0.0, 99, True),
        # most of what was measured is freed: the disk is still only for a moment
        (Awaited(BYTES, 10, 90, LAYER_S), 40, STILL_S - 0.1, 49, False),
        (Awaited(BYTES, 10, 90, LAYER_S), 40, STILL_S, 49, True),
        (Awaited(BYTES, 10, 90, LAYER_S), 40, STILL_S, 48, False),
        (Awaited(BYTES, None, 0, LAYER_S), 40, STILL_S, 90, False),
    ],
)
def test_whether_the_disk_is_judged(
    awaited: Awaited, least: int, still_for: float, available: int, settled: bool
) -> None:
    state = Settling(awaited, least, 0, available, still_since=5.0)
    assert is_settled(state, 1000, 5.0 + still_for) is settled


def test_the_disk_is_still_since_its_last_certain_growth() -> None:
    state = begun(Awaited(BYTES), seen(50), 1.0)
    assert state == Settling(Awaited(BYTES), 50, 50, 50, 1.0)
    looks = [
        (40, Settling(Awaited(BYTES), 50, 40, 40, 1.0)),
        (41, Settling(Awaited(BYTES), 41, 41, 40, 1.0)),
        (41, Settling(Awaited(BYTES), 41, 41, 41, 4.0)),
        (41, Settling(Awaited(BYTES), 41, 41, 41, 4.0)),
    ]
    for now, (available, expected) in enumerate(looks, 2):
        state = observed(state, seen(available), float(now))
        assert state == expected


@pytest.mark.parametrize("wrong", [0, 1000])
def test_one_wrong_observation_settles_nothing(wrong: int) -> None:
    state = begun(Awaited(BYTES, 60, 0, LAYER_S), seen(50), 1.0)
    for now, available in enumerate([50, wrong, 50, 50, 50], 2):
        state = observed(state, seen(available), float(now))
        assert not is_settled(state, 1000, float(now))
    state = observed(observed(state, seen(110), 7.0), seen(110), 7.2)
    assert not is_settled(state, 1000, 7.2 + STILL_S - 0.01)
    assert is_settled(state, 1000, 7.2 + STILL_S)

"""Time until a node's next measurement."""

from __future__ import annotations

import pytest

from kubeletpy.node.eviction.decide import (
    CONFIRM_S,
    Amount,
    Observations,
    Rules,
    Signal,
    SignalObservation,
    Threshold,
    observation_delay,
)
from tests.unit.node.eviction.rules import GI, MI, rules

RULES = rules(evictionHard={"memory.available": "100Mi"}, enforceNodeAllocatable=[])


def seen(available: int, at: float = 10.0) -> dict[Signal, SignalObservation]:
    return {Signal.MEMORY: SignalObservation(available, 64 * GI, at)}


@pytest.mark.parametrize(
    ("available", "seconds"),
    [
        (60 * GI, 10.0),
        (2 * GI + 100 * MI, 2.0),
        (612 * MI, 0.5),
        (101 * MI, 0.1),
        (100 * MI, 0.1),
        (100 * MI - 1, 10.0),
        (99 * MI, 10.0),
    ],
)
def test_the_nearer_the_sooner(available: int, seconds: float) -> None:
    assert observation_delay(seen(available), {}, RULES) == seconds


def test_a_crossed_threshold_is_confirmed_at_once() -> None:
    assert CONFIRM_S == 0.05


A_SECOND = {
    Signal.MEMORY: GI,
    Signal.ALLOCATABLE_MEMORY: GI,
    Signal.NODEFS: 512 * MI,
    Signal.NODEFS_INODES: 100_000,
    Signal.IMAGEFS: 512 * MI,
    Signal.IMAGEFS_INODES: 100_000,
    Signal.CONTAINERFS: 512 * MI,
    Signal.CONTAINERFS_INODES: 100_000,
    Signal.PIDS: 10_000,
}


@pytest.mark.parametrize("signal", Signal)
def test_the_interval_assumes_a_greatest_rate(signal: Signal) -> None:
    one = Rules((Threshold(signal, Amount(7)),))
    found = {signal: SignalObservation(7 + 3 * A_SECOND[signal], 64 * GI, 10.0)}
    assert observation_delay(found, {}, one) == 3.0


def test_the_nearest_of_all_counts() -> None:
    two = Rules((Threshold(Signal.NODEFS, Amount(0)), Threshold(Signal.PIDS, Amount(0))))
    found = {
        Signal.NODEFS: SignalObservation(GI, 64 * GI, 10.0),
        Signal.PIDS: SignalObservation(50_000, 64 * GI, 10.0),
    }
    assert observation_delay(found, {}, two) == 2.0
    found[Signal.NODEFS] = SignalObservation(3 * GI, 64 * GI, 10.0)
    assert observation_delay(found, {}, two) == 5.0
    del found[Signal.PIDS]
    assert observation_delay(found, {}, two) == 6.0


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        ({}, 5.0),
        (seen(6 * GI + 100 * MI, 9.0), 2.5),
        (seen(15 * GI + 100 * MI, 5.0), 1.25),
        (seen(5 * GI + 100 * MI + MI, 9.0), 5.0),
        (seen(0, 9.0), 5.0),
        # seen at the same time, or in another order: these give no rate
        (seen(6 * GI + 100 * MI, 10.0), 5.0),
        (seen(0, 11.0), 5.0),
        (seen(60 * GI, 11.0), 5.0),
    ],
)
def test_faster_growth_is_measured_sooner(before: Observations, seconds: float) -> None:
    assert observation_delay(seen(5 * GI + 100 * MI), before, RULES) == pytest.approx(seconds)


def test_without_observations_the_period_applies() -> None:
    assert observation_delay({}, {}, RULES) == 10.0


@pytest.mark.parametrize(("grace", "seconds"), [("3s", 3.0), ("30s", 10.0), ("0s", 10.0)])
def test_a_soft_threshold_that_is_crossed_waits_for_its_grace(grace: str, seconds: float) -> None:
    soft = rules(
        evictionHard={},
        evictionSoft={"memory.available": "1Gi"},
        evictionSoftGracePeriod={"memory.available": grace},
    )
    assert observation_delay(seen(0), {}, soft) == seconds


@pytest.mark.parametrize("a_second", [64 * MI, 512 * MI, GI, 3 * GI])
def test_no_eater_is_seen_later_than_a_fifth_of_a_second(a_second: int) -> None:
    start = 40 * GI
    now, found = 0.0, seen(start, 0.0)
    before: dict[Signal, SignalObservation] = {}
    crossed_at = (start - 100 * MI) / a_second
    while now < crossed_at:
        wait = observation_delay(found, before, RULES)
        now += wait
        left = max(0, start - int(a_second * now))
        before, found = found, seen(left, now)
    late = now - crossed_at
    assert late <= (0.2 if a_second <= 2 * GI else 10.0 * 0.5)

"""How soon a node is looked at again."""

from __future__ import annotations

import pytest

from kubeletpy.eviction.next_look import LEAST_S, PERIOD_S, next_look
from kubeletpy.eviction.signals import Observation, Signal
from tests.unit.eviction.rules import GI, MI, rules

RULES = rules(evictionHard={"memory.available": "100Mi"}, enforceNodeAllocatable=[])


def seen(available: int, at: float = 10.0) -> dict[Signal, Observation]:
    return {Signal.MEMORY: Observation(available, 64 * GI, at)}


@pytest.mark.parametrize(
    ("available", "seconds"),
    [
        (60 * GI, PERIOD_S),
        (2 * GI + 100 * MI, 2.0),
        (612 * MI, 0.5),
        (101 * MI, LEAST_S),
        (100 * MI, LEAST_S),
        (99 * MI, PERIOD_S),
    ],
)
def test_the_nearer_the_sooner(available: int, seconds: float) -> None:
    assert next_look(seen(available), {}, RULES) == seconds


def test_what_goes_faster_is_looked_at_sooner() -> None:
    before, now = seen(60 * GI, 9.0), seen(50 * GI, 10.0)
    assert next_look(now, before, RULES) == pytest.approx((50 * GI - 100 * MI) / (20 * GI))


def test_what_is_not_seen_is_looked_at_by_the_clock() -> None:
    assert next_look({}, {}, RULES) == PERIOD_S


def test_a_soft_threshold_that_is_crossed_waits_for_its_grace() -> None:
    soft = rules(
        evictionHard={},
        evictionSoft={"memory.available": "1Gi"},
        evictionSoftGracePeriod={"memory.available": "3s"},
    )
    assert next_look(seen(0), {}, soft) == 3.0


@pytest.mark.parametrize("a_second", [64 * MI, 512 * MI, GI, 3 * GI])
def test_no_eater_is_seen_later_than_a_fifth_of_a_second(a_second: int) -> None:
    start = 40 * GI
    now, found = 0.0, seen(start, 0.0)
    before: dict[Signal, Observation] = {}
    crossed_at = (start - 100 * MI) / a_second
    while now < crossed_at:
        wait = next_look(found, before, RULES)
        now += wait
        left = max(0, start - int(a_second * now))
        before, found = found, seen(left, now)
    late = now - crossed_at
    assert late <= (0.2 if a_second <= 2 * GI else 10.0 * 0.5)

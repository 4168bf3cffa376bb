"""Rate limits and retry delays."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from kubeletpy.kubeapi.transport import RateLimiter, RepairPace, jittered_waits, spread
from tests.virtual_time import on_virtual_time, timed


def test_burst_then_rate() -> None:
    limiter = RateLimiter(10, 3)
    assert [limiter.reserve(100.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert limiter.reserve(100.3) == 0
    assert [limiter.reserve(200.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_zero_is_no_limit() -> None:
    limiter = RateLimiter(0, 0)
    assert [limiter.reserve(1.0) for _ in range(100)] == [0.0] * 100


@on_virtual_time
async def test_waiting() -> None:
    limiter = RateLimiter(2, 1)
    await limiter.wait()
    assert (await timed(limiter.wait()))[1] == pytest.approx(0.5)


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 4), (0.5, 6), (1.0, 8)])
def test_retry_after_is_a_minimum(chance: float, seconds: float) -> None:
    assert spread(4, chance) == seconds


def test_waits_double_with_jitter_up_to_a_limit() -> None:
    waits = list(islice(jittered_waits(0.8, 30, random.Random(1)), 10))
    for seconds, base in zip(waits, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30, 30], strict=True):
        assert base <= seconds <= 2 * base


def test_repairs_are_made_at_once_and_then_ever_later() -> None:
    pace, made = RepairPace(10, 100), list[int]()
    for now in range(1000):  # something is removed again each second
        if pace.due(now):
            pace.repaired(now)
            made.append(now)
    assert made == [0, 10, 30, 70, 150, 250, 350, 450, 550, 650, 750, 850, 950]


def test_a_repair_that_lasts_is_forgotten() -> None:
    pace = RepairPace(10, 100)
    for now in (0, 10, 30, 70):
        pace.repaired(now)
    assert not pace.due(149)
    pace.repaired(70 + 4 * 80)
    assert pace.due(70 + 4 * 80 + 10)

"""CPU rates from samples at any intervals."""

from __future__ import annotations

from kubeletpy.node.stats.usage import FORGET_NS, Rates

SECOND = 1_000_000_000


def test_a_rate_needs_two_samples_with_time_between() -> None:
    rates = Rates()
    assert rates.nano_cores("a", 0, 0) is None
    assert rates.nano_cores("a", SECOND // 4, SECOND // 4) is None
    assert rates.nano_cores("a", 2 * SECOND, 3 * SECOND) == 1_500_000_000
    assert rates.nano_cores("b", 2 * SECOND, 3 * SECOND) is None


def test_the_window_moves_on() -> None:
    rates = Rates()
    found = [rates.nano_cores("a", at * SECOND, min(at, 30) * SECOND) for at in range(0, 61, 5)]
    assert found[1:7] == [SECOND] * 6
    assert found[-1] == 0, "nothing was used for half a minute"


def test_a_rare_reading_covers_the_time_since_the_previous_one() -> None:
    rates = Rates()
    for minute in range(5):
        used = minute * 60 * SECOND // 4
        rate = rates.nano_cores("a", minute * 60 * SECOND, used)
    assert rate == SECOND // 4


def test_a_counter_that_starts_anew_and_one_that_is_too_old() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 5 * SECOND)
    assert rates.nano_cores("a", 2 * SECOND, SECOND) is None
    assert rates.nano_cores("a", 3 * SECOND, 2 * SECOND) == SECOND
    assert rates.nano_cores("a", 3 * SECOND + FORGET_NS, 9 * SECOND) is None


def test_a_clock_that_was_set_back() -> None:
    rates = Rates()
    rates.nano_cores("a", 100 * SECOND, SECOND)
    assert rates.nano_cores("a", 50 * SECOND, 2 * SECOND) is None
    assert rates.nano_cores("a", 51 * SECOND, 3 * SECOND) == SECOND
    assert rates.nano_cores("a", 51 * SECOND, 3 * SECOND) == SECOND, "it stands still"
    assert rates.nano_cores("a", 51 * SECOND - 1, 3 * SECOND) is None


def test_others_are_forgotten() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.forget_others(["b"])
    assert rates.nano_cores("a", SECOND, SECOND) is None


def test_half_a_second_is_enough_and_is_needed() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    assert rates.nano_cores("a", SECOND // 2 - 1, SECOND) is None
    assert rates.nano_cores("a", SECOND // 2, SECOND) == 2 * SECOND


def test_ten_minutes_are_too_long() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.nano_cores("b", 0, 0)
    assert rates.nano_cores("a", FORGET_NS - 1, 0) == 0
    assert rates.nano_cores("b", FORGET_NS, 0) is None
    assert FORGET_NS == 600 * SECOND


def test_a_window_of_ten_seconds_ends_and_the_next_overlaps_it() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.nano_cores("a", 4 * SECOND, 4 * SECOND)
    # up to 10 s the rate starts at the first sample; the next window begins at the previous sample
    assert rates.nano_cores("a", 10 * SECOND, 4 * SECOND) == 4 * SECOND // 10
    assert rates.nano_cores("a", 12 * SECOND, 6 * SECOND) == 2 * SECOND // 8


def test_after_ten_seconds_without_a_sample_the_next_window_begins_at_the_new_one() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.nano_cores("a", 10 * SECOND, 5 * SECOND)
    assert rates.nano_cores("a", 12 * SECOND, 7 * SECOND) == SECOND
    rates.nano_cores("b", 0, 0)
    rates.nano_cores("b", SECOND, 0)
    rates.nano_cores("b", 11 * SECOND - 1, 10 * SECOND)
    rate = rates.nano_cores("b", 12 * SECOND - 1, 11 * SECOND)
    assert rate == 11 * SECOND * SECOND // (11 * SECOND - 1), "a nanosecond less: at the one before"


def test_within_ten_seconds_the_rate_is_since_the_begin() -> None:
    rates = Rates()
    for at, used in ((0, 0), (4, 4), (8, 4)):
        rates.nano_cores("a", at * SECOND, used * SECOND)
    assert rates.nano_cores("a", 9 * SECOND, 9 * SECOND) == SECOND


def test_a_window_can_begin_with_a_start_of_the_last_minute() -> None:
    rates, now = Rates(), 1_000 * SECOND
    assert rates.nano_cores("a", now, SECOND, now - 10 * SECOND) == SECOND // 10
    assert rates.nano_cores("b", now, SECOND, now - 60 * SECOND) is None, "no current usage"
    assert rates.nano_cores("c", now, SECOND, now + SECOND) is None, "a clock that was set back"
    assert rates.nano_cores("d", now, SECOND, now - SECOND // 4) is None, "too short"
    assert rates.nano_cores("d", now + SECOND // 4, SECOND) == 2 * SECOND
    # a counter that starts anew under the same key has no known start
    assert rates.nano_cores("a", now + SECOND, SECOND // 2, now - 10 * SECOND) is None


def test_rates_that_are_worth_a_second_sample() -> None:
    rates, now = Rates(), 1_000 * SECOND
    rates.nano_cores("fresh", now, SECOND)
    rates.nano_cores("old", now - SECOND, SECOND)
    rates.nano_cores("known", now, SECOND, now - SECOND)
    assert rates.lacks(["fresh", "known"], now)
    assert not rates.lacks(["known", "unseen"], now)
    assert not rates.lacks(["old"], now), "its source has no newer numbers"
    assert not rates.lacks(["fresh"], now + SECOND // 2)

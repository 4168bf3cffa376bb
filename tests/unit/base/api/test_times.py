"""Times and durations, parsed and formatted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.base.api import quantity, times
from kubeletpy.base.api.times import (
    format_duration,
    format_micro_time,
    format_nanoseconds,
    format_time,
    parse_duration,
    parse_time,
)

NOW = 1_800_000_000
TEXT = "2027-01-15T08:00:00Z"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (999_999_999, "1970-01-01T00:00:00Z"),
        (1_000_000_000, "1970-01-01T00:00:01Z"),
        (NOW * 10**9, TEXT),
        (NOW * 10**9 - 1, "2027-01-15T07:59:59Z"),
    ],
)
def test_nanoseconds(nanoseconds: int, text: str) -> None:
    assert format_nanoseconds(nanoseconds) == text


def test_times() -> None:
    assert format_time(NOW + 0.999) == TEXT
    assert format_micro_time(NOW + 0.25) == "2027-01-15T08:00:00.250000Z"
    for text in (TEXT, "2027-01-15T09:00:00+01:00", "2027-01-15T08:00:00.000000Z"):
        assert parse_time(text) == NOW
    for bad in ("2027-01-15T08:00:00", "", "now"):
        with pytest.raises(ValueError):
            parse_time(bad)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("+0", 0.0),
        ("0s", 0.0),
        ("1ns", 1e-9),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("1ms", 1e-3),
        ("1s", 1.0),
        ("1m", 60.0),
        ("1h", 3600.0),
        ("-1h2m3.5s", -3723.5),
        ("+1.s", 1.0),
        (".5s", 0.5),
        ("1s1s", 2.0),
        ("9223372036854775807ns", (2**63 - 1) / 1e9),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        "1",
        "00",
        "s",
        "1x",
        "1d",
        "1s ",
        " 1s",
        "--1s",
        "1.s.",
        "1e3s",
        "9999999h",
        "9223372036854775808ns",
    ],
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (1e-10, "0s"),
        (1e-9, "1ns"),
        (-1e-9, "-1ns"),
        (999e-9, "999ns"),
        (1e-6, "1µs"),
        (1.5e-6, "1.5µs"),
        (999_999e-9, "999.999µs"),
        (1e-3, "1ms"),
        (0.999_999, "999.999ms"),
        (1, "1s"),
        (59.5, "59.5s"),
        (60, "1m0s"),
        (90, "1m30s"),
        (-61, "-1m1s"),
        (3599, "59m59s"),
        (3600, "1h0m0s"),
        (3661, "1h1m1s"),
        (3661.25, "1h1m1.25s"),
        (-360_000, "-100h0m0s"),
    ],
)
def test_formatted_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# Durations and quantities, both ways.


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("10s", 10, "10s"),
        ("160s", 160, "2m40s"),
        ("3723.004s", 3723.004, "1h2m3.004s"),
        ("1m0s", 60, "1m0s"),
        ("100ms", 0.1, "100ms"),
        ("1.5h", 5400, "1h30m0s"),
        ("-1.5s", -1.5, "-1.5s"),
        ("1500us", 0.0015, "1.5ms"),
        ("2µs", 2e-6, "2µs"),
        ("5ns", 5e-9, "5ns"),
        (".5s", 0.5, "500ms"),
        ("-1ns", -1e-9, "-1ns"),
        ("999ns", 999e-9, "999ns"),
        ("999.5ms", 0.9995, "999.5ms"),
        ("-1h", -3600, "-1h0m0s"),
    ],
)
def test_units_durations(text: str, seconds: float, canonical: str) -> None:
    assert times.parse_duration(text) == seconds
    assert times.format_duration(seconds) == canonical


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_duration_round_trip(microseconds: int) -> None:
    seconds = microseconds / 1e6
    assert times.parse_duration(times.format_duration(seconds)) == pytest.approx(seconds)


@given(st.integers(min_value=0, max_value=2**62))
def test_bytes_round_trip(count: int) -> None:
    assert quantity.value(quantity.spelled(count, binary=True)) == count

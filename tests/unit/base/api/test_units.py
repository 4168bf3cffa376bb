"""Durations and quantities, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.base.api import quantity, times


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("0", 0, "0s"),
        ("10s", 10, "10s"),
        ("160s", 160, "2m40s"),
        ("3723.004s", 3723.004, "1h2m3.004s"),
        ("1m0s", 60, "1m0s"),
        ("1h", 3600, "1h0m0s"),
        ("100ms", 0.1, "100ms"),
        ("1.5h", 5400, "1h30m0s"),
        ("-1.5s", -1.5, "-1.5s"),
        ("1500us", 0.0015, "1.5ms"),
        ("2µs", 2e-6, "2µs"),
        ("5ns", 5e-9, "5ns"),
        (".5s", 0.5, "500ms"),
        ("-1ns", -1e-9, "-1ns"),
        ("999ns", 999e-9, "999ns"),
        ("1us", 1e-6, "1µs"),
        ("999.5ms", 0.9995, "999.5ms"),
        ("1s", 1, "1s"),
        ("-1h", -3600, "-1h0m0s"),
    ],
)
def test_durations(text: str, seconds: float, canonical: str) -> None:
    assert times.parse_duration(text) == seconds
    assert times.format_duration(seconds) == canonical


@pytest.mark.parametrize("text", ["", "1", "1d", "s", "1s ", "--1s", "1.s.", "9999999h", "-"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        times.parse_duration(text)


@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_duration_round_trip(microseconds: int) -> None:
    seconds = microseconds / 1e6
    assert times.parse_duration(times.format_duration(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "value"),
    [("10Mi", 10485760), ("1.5Gi", 1610612736), ("1500m", 2), ("1e3", 1000), ("5k", 5000),
     ("1E", 10**18), ("1Ei", 2**60), ("-1", -1), ("100n", 1)],
)  # fmt: skip
def test_quantities(text: str, value: int) -> None:
    assert quantity.value(text) == value


@pytest.mark.parametrize("text", ["", "Mi", "1 Mi", "1mi", "nan", "inf", "1e9999", "0x10", "1Ki\n"])
def test_bad_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity.value(text)


@given(st.integers(min_value=0, max_value=2**62))
def test_bytes_round_trip(count: int) -> None:
    assert quantity.value(quantity.spelled(count, binary=True)) == count

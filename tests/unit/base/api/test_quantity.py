"""Quantities, including values that no API server accepts."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.quantity import milli_value, value

MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("-5", -5, -5000),
        ("100m", 1, 100),
        ("1n", 1, 1),
        ("0.5", 1, 500),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("1k", 1000, 1_000_000),
        ("1Ki", 1024, 1_024_000),
        ("0.5Gi", 2**29, 2**29 * 1000),
        ("1E", 10**18, MAX),
        ("1e3", 1000, 1_000_000),
        ("1E3", 1000, 1_000_000),
        ("3e-2", 1, 30),
        (2, 2, 2000),
        (0.5, 1, 500),
        ("1e999", MAX, MAX),
        ("-1e999", -MAX, -MAX),
    ],
)
def test_values_round_up_and_stay_within_64_bits(text: str, whole: int, milli: int) -> None:
    assert (value(text), milli_value(text)) == (whole, milli)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "1ki",
        "1KI",
        "NaN",
        "Infinity",
        "1_000",
        " 5",
        "5 ",
        "1e99999999999",
        "9" * 70,
        "٣",
    ],
)
def test_invalid_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        value(text)

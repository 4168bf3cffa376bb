"""Quantities: each suffix, bounds and the API's own spelling."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kubeletpy.base.api import quantity
from kubeletpy.base.text import scrub

MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("suffix", "size"),
    [
        ("n", "1e-9"),
        ("u", "1e-6"),
        ("m", "1e-3"),
        ("", "1"),
        ("k", "1e3"),
        ("M", "1e6"),
        ("G", "1e9"),
        ("T", "1e12"),
        ("P", "1e15"),
        ("E", "1e18"),
        ("Ki", str(2**10)),
        ("Mi", str(2**20)),
        ("Gi", str(2**30)),
        ("Ti", str(2**40)),
        ("Pi", str(2**50)),
        ("Ei", str(2**60)),
        ("e3", "1e3"),
        ("E-2", "1e-2"),
    ],
)
def test_suffixes(suffix: str, size: str) -> None:
    assert quantity.parse(f"1.5{suffix}") == Decimal("1.5") * Decimal(size)


@pytest.mark.parametrize(
    ("text", "amount"),
    [(str(MOST), MOST), (str(MOST + 1), MOST), ("8Ei", MOST), ("-8Ei", -MOST), (f"-{MOST}", -MOST)],
)
def test_amounts_are_clamped(text: str, amount: int) -> None:
    assert quantity.parse(text) == amount
    assert quantity.value(text) == amount
    assert quantity.whole(Decimal(amount) * 2) == (MOST if amount > 0 else -MOST)


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [("0", 0, 0), ("1m", 1, 1), ("1u", 1, 1), ("-1m", 0, -1), ("1001m", 2, 1001), ("2", 2, 2000)],
)
def test_amounts_are_rounded_up(text: str, whole: int, milli: int) -> None:
    assert (quantity.value(text), quantity.milli_value(text)) == (whole, milli)


def test_the_longest_text() -> None:
    assert quantity.parse("0" * 63 + "1") == 1
    for text in ("0" * 64 + "1", "1x", "", "e3", "1ki", "0x1"):
        with pytest.raises(ValueError, match="not a quantity"):
            quantity.parse(text)


@pytest.mark.parametrize(
    ("amount", "binary", "decimal"),
    [
        (0, "0", "0"),
        (1, "1", "1"),
        (1000, "1k", "1k"),
        (1023, "1023", "1023"),
        (1024, "1Ki", "1024"),
        (1025, "1025", "1025"),
        (1536, "1536", "1536"),
        (2000, "2000", "2k"),
        (2**20, "1Mi", str(2**20)),
        (3 * 2**60, "3Ei", str(3 * 2**60)),
        (1024 * 2**60, "1024Ei", str(2**70)),
        (10**18, "976562500000000Ki", "1E"),
        (10**21, "953674316406250Mi", "1000E"),
        (-1000, "-1k", "-1k"),
    ],
)
def test_the_apis_spelling(amount: int, binary: str, decimal: str) -> None:
    assert quantity.spelled(amount, binary=False) == decimal
    assert quantity.spelled(amount, binary=True) == binary


@pytest.mark.parametrize(("size", "reported"), [(4096, 4096), (4097, 4096)])
def test_foreign_texts_are_cut(size: int, reported: int) -> None:
    found = scrub("x" * size)
    assert len(found) == reported
    assert found.endswith("…") is (size > reported)

"""Quantities, including values that no API server accepts."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import add

import pytest

from kubeletpy.base.api import quantity
from kubeletpy.base.api.quantity import (
    Format,
    Quantity,
    canonical,
    milli_value,
    parse_quantity,
    value,
    written,
)
from kubeletpy.base.text import scrub
from kubeletpy_up.schema.formats import canonical as of_the_server

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
        ("1m", 1, 1),
        ("1u", 1, 1),
        ("100n", 1, 1),
        ("-1m", 0, -1),
        ("1001m", 2, 1001),
        ("1500m", 2, 1500),
        ("2", 2, 2000),
        ("-1", -1, -1000),
        ("5k", 5000, 5_000_000),
        ("10Mi", 10 * 2**20, 10_000 * 2**20),
        ("1.5Gi", 1536 * 2**20, 1_536_000 * 2**20),
        ("1Ei", 2**60, MAX),
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
        *("", "abc", "Mi", "e3", "1e", "1x", "0x1", "0x10", "1 Mi", "1mi", "1ki", "1KI", "1Ki\n"),
        *("NaN", "nan", "Infinity", "inf", "1_000", " 5", "5 ", "1e9999", "1e99999999999"),
        *("9" * 70, "0" * 64 + "1", "٣"),
    ],
)
def test_invalid_quantities(text: str) -> None:
    for read in (value, canonical, quantity.parse):
        with pytest.raises(ValueError, match="not a quantity"):
            read(text)


# Quantities as the API writes them: amount and format kept, the largest suffix that fits.

MOST = 2**63 - 1
TEXTS = [
    ("0", "0"),
    ("0Mi", "0"),
    ("0e9", "0"),
    ("1", "1"),
    ("0.5", "500m"),
    ("1.5", "1500m"),
    ("10m", "10m"),
    ("1000m", "1"),
    ("1500m", "1500m"),
    ("100u", "100u"),
    ("1n", "1n"),
    ("0.1n", "1n"),
    ("-0.1n", "-1n"),
    ("1.0000000001", "1000000001n"),
    ("1000", "1k"),
    ("1500", "1500"),
    ("100000", "100k"),
    ("1048576", "1048576"),
    ("100M", "100M"),
    ("0.1G", "100M"),
    ("1024M", "1024M"),
    ("1Ki", "1Ki"),
    ("1024Ki", "1Mi"),
    ("1.5Gi", "1536Mi"),
    ("0.5Ki", "512"),
    ("0.1Ki", "102400m"),
    ("1.3Ki", "1331200m"),
    ("-1Mi", "-1Mi"),
    ("-0.5Ki", "-512"),
    ("4Ei", "4Ei"),
    ("1e3", "1e3"),
    ("12E6", "12e6"),
    ("1500e3", "1500e3"),
    ("1500000e0", "1500e3"),
    ("5e0", "5"),
    ("3e-2", "30e-3"),
    ("2E", "2E"),
    (str(MOST), str(MOST)),
    ("8Ei", str(MOST)),
    (2, "2"),
    (0.25, "250m"),
]


@pytest.mark.parametrize(("text", "reported"), TEXTS)
def test_the_text_of_a_quantity(text: str | float, reported: str) -> None:
    assert canonical(text) == reported
    assert canonical(reported) == reported


@pytest.mark.parametrize("text", [t for t, _ in TEXTS if isinstance(t, str) and t != "-0.1n"])
def test_the_embedded_api_writes_the_same(text: str) -> None:
    assert of_the_server(text) == canonical(text)


@pytest.mark.parametrize(
    ("addends", "total"),
    [
        (["1Mi", "1M"], "2048576"),
        (["1M", "1Mi"], "2048576"),
        (["1Mi", "1024"], "1025Ki"),
        (["1024", "1Mi"], "1049600"),
        (["0", "1Ki"], "1Ki"),
        (["0", "0"], "0"),
        (["10m", "990m"], "1"),
        (["1e3", "1k"], "2e3"),
        (["1Ki", "-1Ki", "5k"], "5k"),
    ],
)
def test_a_sum_has_the_format_of_its_first_addend_above_zero(
    addends: list[str], total: str
) -> None:
    assert str(reduce(add, map(parse_quantity, addends))) == total


def test_a_sum_of_the_largest_amounts_is_exact() -> None:
    total = reduce(
        add, [parse_quantity(str(MOST)), parse_quantity("1n")] + [parse_quantity(str(MOST))] * 1000
    )
    assert str(total) == f"{MOST * 1001}000000001n"


def test_quantities_compare_by_amount() -> None:
    assert parse_quantity("1000k") < parse_quantity("1Mi")
    assert not parse_quantity("1024Ki") < parse_quantity("1Mi")
    assert not parse_quantity("0Mi")
    assert parse_quantity("1n")


@pytest.mark.parametrize(
    ("form", "reported"),
    [(Format.DECIMAL, "2048"), (Format.BINARY, "2Ki"), (Format.EXPONENT, "2048")],
)
def test_an_amount_in_each_format(form: Format, reported: str) -> None:
    assert written(Decimal(2048), form) == reported
    assert str(Quantity(Decimal(2048), form)) == reported


# Quantities: each suffix, bounds and the API's own spelling.


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


def test_the_longest_text() -> None:
    assert quantity.parse("0" * 63 + "1") == 1


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


# Text from untrusted peers, made safe to display.


@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ("GET https://joe:hunter2@reg.io/v2/: 401", "GET https://reg.io/v2/: 401"),
        ("Basic am9l c3ecr3t refused", "Basic am9l [redacted] refused"),
        ("a\x1b[31m\x00red\nline\ttab", "a[31mred\nline\ttab"),
        ("x" * 5000, "x" * 4095 + "…"),
    ],
)
def test_scrub(stated: str, reported: str) -> None:
    assert scrub(stated, ["", "c3", "c3ecr3t"]) == reported

"""Quantities as the API writes them: amount and format kept, the largest suffix that fits."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from operator import add

import pytest

from kubeletpy.base.api.quantity import Format, Quantity, canonical, parse_quantity, written
from kubeletpy_up.schema.formats import canonical as of_the_server

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


@pytest.mark.parametrize("text", ["", "NaN", "1ki", "1e", "Mi", "1 Mi"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        canonical(text)

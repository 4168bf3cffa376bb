"""Kubernetes quantities ("500m", "1Gi"): as whole numbers, exact sums, and as text. Pure.

Whole numbers are rounded up, as the scheduler does. The client library's parser is not used: it
imports the complete library and accepts words like "NaN" as numbers. Must never let a hostile text
cost more than its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from enum import Enum, auto
from functools import lru_cache

from msgspec import Struct

_SYNTAX = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([A-Za-z]{0,2}))"
)

_SCALES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MAX_TEXT = 64
_MAX = Decimal(2**63 - 1)


def parse(text: str | int | float) -> Decimal:
    """Read a quantity, clamped to the range of a signed 64-bit number.

    Raises:
        ValueError: not a quantity.
    """
    written = str(text)
    if len(written) > _MAX_TEXT:
        raise ValueError(f"not a quantity: {written[:_MAX_TEXT]!r}")
    return _parsed(written)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Decimal:
    # each sync of each pod reads the same few, many times
    match = _SYNTAX.fullmatch(text)
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, exponent, suffix = match.groups()
    if exponent:
        amount = Decimal(number + exponent)
    elif (suffix or "") in _SCALES:
        amount = Decimal(number) * _SCALES[suffix or ""]
    else:
        raise ValueError(f"not a quantity: {text!r} has an unknown suffix")
    return max(-_MAX, min(_MAX, amount))


def value(text: str | int | float) -> int:
    """Whole units (bytes, pods), rounded up. Raises ValueError."""
    return whole(parse(text))


def milli_value(text: str | int | float) -> int:
    """Thousandths (millicores), rounded up. Raises ValueError."""
    return whole(parse(text) * 1000)


def whole(amount: Decimal) -> int:
    """A parsed quantity (or a sum) in whole units, rounded up and clamped to signed 64 bits."""
    return int(max(-_MAX, min(_MAX, amount.to_integral_value(ROUND_CEILING))))


def spelled(amount: int, *, binary: bool) -> str:
    """The API's canonical form of an amount: ``10Mi`` if ``binary``, else ``10M``.

    Source: k8s.io/apimachinery, CanonicalizeBytes (below 1024 always decimal).
    """
    if binary and amount >= 1024:
        return with_suffix(amount, 1024, BINARY_SUFFIXES)
    return with_suffix(amount, 1000, ("", "k", "M", "G", "T", "P", "E"))


def with_suffix(count: int, step: int, suffixes: Sequence[str]) -> str:
    """A count with the largest suffix that leaves it whole; each is ``step`` of the previous."""
    if not count:
        return "0"
    power = 0
    while power + 1 < len(suffixes) and count % step == 0:
        count //= step
        power += 1
    return f"{count}{suffixes[power]}"


# Sums are exact (``10m`` bytes stay ``10m``) and have the format of their first addend that is not
# zero. Source: k8s.io/apimachinery, resource.Quantity: Add, CanonicalizeBytes.

_NANO = Decimal("1e-9")
_EXACT = Context(prec=100)
"""Digits enough for a sum of the largest amounts of a pod in billionths."""
_DECIMAL_SUFFIXES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_EXPONENT_LETTERS = frozenset("eE")


class Format(Enum):
    """How an amount is written."""

    DECIMAL = auto()
    """``1500m``, ``100M``."""
    BINARY = auto()
    """``96Mi``."""
    EXPONENT = auto()
    """``12e6``."""


class Quantity(Struct, frozen=True):
    """An amount and its format; equal if both are. ``+`` and ``<`` do what Go's Add and Cmp do."""

    amount: Decimal
    format: Format

    def __add__(self, other: Quantity) -> Quantity:
        form = self.format if self.amount else other.format
        return Quantity(_EXACT.add(self.amount, other.amount), form)

    def __lt__(self, other: Quantity) -> bool:
        return self.amount < other.amount

    def __bool__(self) -> bool:
        return bool(self.amount)

    def __str__(self) -> str:
        return written(self.amount, self.format)


@lru_cache(maxsize=1024)
def parse_quantity(text: str | int | float) -> Quantity:
    """An amount with the format of its text. Raises ValueError."""
    return Quantity(parse(text), _format_of(str(text)))


def canonical(text: str | int | float) -> str:
    """The text that the API returns for a quantity: ``0.5`` is ``500m``. Raises ValueError."""
    return str(parse_quantity(text))


def written(amount: Decimal, form: Format) -> str:
    """An amount as the API writes it: without a fraction, with the largest suffix that fits.

    An amount finer than a billionth is rounded away from zero. A binary amount below 1024 or with a
    fraction is written as a decimal one.
    """
    amount = amount.quantize(_NANO, rounding=ROUND_UP, context=_EXACT)
    if form is Format.BINARY and abs(amount) >= 1024 and amount == amount.to_integral_value():
        return with_suffix(int(amount), 1024, BINARY_SUFFIXES)
    billionths = int(amount.scaleb(9, context=_EXACT))
    if form is not Format.EXPONENT:
        return with_suffix(billionths, 1000, _DECIMAL_SUFFIXES)
    exponent = -9
    while billionths and billionths % 1000 == 0:
        billionths //= 1000
        exponent += 3
    return f"{billionths}e{exponent}" if billionths and exponent else str(billionths)


def _format_of(text: str) -> Format:
    if text.endswith("i"):
        return Format.BINARY
    # a trailing E is the suffix for 10^18; before digits it is an exponent
    return Format.EXPONENT if _EXPONENT_LETTERS & set(text[:-1]) else Format.DECIMAL

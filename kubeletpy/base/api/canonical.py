"""Quantities with the format they were written in, and the text that the API writes for them.

Pure. A sum keeps its amount exactly (``10m`` bytes stay ``10m``) and has the format of its first
addend that is not zero. Source: k8s.io/apimachinery, resource.Quantity: Add, CanonicalizeBytes.
"""

from __future__ import annotations

from decimal import ROUND_UP, Context, Decimal
from enum import Enum, auto
from functools import lru_cache

from msgspec import Struct

from kubeletpy.base.api.quantity import BINARY_SUFFIXES, parse, with_suffix

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

"""Quantities as an API server writes them back: ``1000m`` as ``1``, ``1024Mi`` as ``1Gi``.

One value has one spelling, so that what a client applied compares equal to what is stored.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache

REGEX = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
FORMAT_ERROR = f"quantities must match the regular expression '{REGEX}'"
SUFFIX_ERROR = "unable to parse quantity's suffix"

_SHAPE = re.compile(r"^([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_EXPONENT = re.compile(r"^[eE][-+]?[0-9]+$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MAX = Decimal(2**63 - 1)
_MAX_LENGTH = 64


@lru_cache(maxsize=1024)
def read(text: str) -> tuple[Decimal, str]:
    """Read a quantity: its value, and its family of suffixes ("decimal", "binary", "exponent").

    Raises:
        ValueError: not a quantity, in the API server's words.
    """
    text = text.strip()
    match = _SHAPE.match(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(FORMAT_ERROR)
    sign, digits, suffix = match.groups()
    with localcontext() as context:
        context.prec = 200
        number = Decimal(sign + digits)
        if suffix in _DECIMAL:
            value, family = number.scaleb(_DECIMAL[suffix]), "decimal"
        elif suffix in _BINARY:
            value, family = number * 1024 ** (_BINARY.index(suffix) + 1), "binary"
        elif _EXPONENT.match(suffix) and len(suffix) <= 5:
            exponent = max(-100, min(100, int(suffix[1:])))
            value, family = number.scaleb(exponent), "exponent"
        else:
            raise ValueError(SUFFIX_ERROR)
        # Finer than a billionth is rounded up, larger than 2^63-1 is capped: as the API does.
        value = value.quantize(Decimal("1e-9"), rounding=ROUND_CEILING)
        return max(-_MAX, min(_MAX, value)), family


@lru_cache(maxsize=1024)
def canonical(text: str) -> str:
    """The one spelling of a quantity.

    Raises:
        ValueError: not a quantity.
    """
    value, family = read(text)
    if value == 0:
        return "0"
    if family == "binary" and abs(value) >= 1024 and value == value.to_integral_value():
        return binary(int(value))
    return _decimal(value, exponent_form=family == "exponent")


def binary(value: int) -> str:
    """A whole number with the largest binary suffix that leaves it whole."""
    if value == 0:
        return "0"
    power = 0
    while power < len(_BINARY) and value % 1024 == 0:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power - 1] if power else ''}"


def _decimal(value: Decimal, *, exponent_form: bool) -> str:
    mantissa, exponent = int(value.scaleb(9)), -9
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa //= 1000
        exponent += 3
    if exponent_form:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAMES[exponent]}"


def milli(text: str) -> int:
    """Thousandths, rounded up. Raises ValueError."""
    return int((read(text)[0] * 1000).to_integral_value(ROUND_CEILING))

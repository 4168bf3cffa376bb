"""Kubernetes quantities ("500m", "1Gi") as whole numbers, rounding up as the scheduler does."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

from kubernetes.utils.quantity import parse_quantity


def parse(text: str | int | float) -> Decimal:
    """Read a quantity.

    Raises:
        ValueError: not a quantity.
    """
    if isinstance(text, str) and text[-1:].isdigit() and ("e" in text or "E" in text):
        return Decimal(text)  # decimal exponent form, which the client reads as a suffix
    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]


def value(text: str | int | float) -> int:
    """Whole units (bytes, pods), rounded up. Raises ValueError."""
    return int(parse(text).to_integral_value(ROUND_CEILING))


def milli_value(text: str | int | float) -> int:
    """Thousandths (millicores), rounded up. Raises ValueError."""
    return int((parse(text) * 1000).to_integral_value(ROUND_CEILING))

"""Durations and quantities as KubeletConfiguration writes them: text to numbers and back. Pure.

Not :mod:`kubeletpy.api.quantity`: reading a configuration must not load a Kubernetes client.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_QUANTITY = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]))?", re.ASCII
)
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(1000),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_MAX_DURATION = Decimal(2**63 - 1) / Decimal(10**9)


def parse_duration(text: str) -> float:
    """Read a Go duration (``1h30m``, ``100ms``, ``0``) as seconds.

    Raises:
        ValueError: not a duration, or longer than Go can hold (about 292 years).
    """
    body = text[1:] if text[:1] in "+-" else text
    if body == "0":
        return 0.0
    total, end = Decimal(0), 0
    while end < len(body):
        part = _PART.match(body, end)
        if part is None:
            raise ValueError(f"not a duration: {text!r}")
        total += Decimal(part[1]) * _UNITS[part[2]]
        end = part.end()
    if end == 0 or total > _MAX_DURATION:
        raise ValueError(f"not a duration: {text!r}")
    return float(-total if text[0] == "-" else total)


def format_duration(seconds: float) -> str:
    """Write seconds as Go does: ``1m0s``, ``100ms``, ``0s``."""
    nanoseconds = round(seconds * 1e9)
    if nanoseconds == 0:
        return "0s"
    sign, nanoseconds = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    for unit, size in (("ns", 1), ("µs", 1000), ("ms", 1_000_000)):
        if nanoseconds < size * 1000 and nanoseconds < 1_000_000_000:
            return f"{sign}{_plain(Decimal(nanoseconds) / size)}{unit}"
    minutes, rest = divmod(nanoseconds, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_plain(Decimal(rest) / 1_000_000_000)}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def parse_quantity(text: str) -> Decimal:
    """Read a Kubernetes quantity (``100Mi``, ``500m``, ``1e3``).

    Raises:
        ValueError: not a quantity.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * _SUFFIX[suffix] if suffix else Decimal(number)


def quantity_value(text: str) -> int:
    """A quantity in whole units (bytes), rounded up. Raises ValueError."""
    return int(parse_quantity(text).to_integral_value(ROUND_CEILING))


def format_bytes(count: int) -> str:
    """Write bytes as the shortest exact binary quantity: ``10Mi``, ``1000``."""
    text = str(count)
    for power, letter in enumerate("KMGTPE", 1):
        if count == 0 or count % 1024**power:
            break
        text = f"{count // 1024**power}{letter}i"
    return text


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"

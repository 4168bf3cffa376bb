"""Durations as Go writes them (``1m30s``, ``100ms``): text to seconds and back. Pure.

Must never accept what Go's ``time.ParseDuration`` would reject.
"""

from __future__ import annotations

import re
from decimal import Decimal

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
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
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
    """Format seconds: ``1m0s``, ``100ms``, ``0s``. Round first for a shorter text."""
    nanoseconds = abs(round(seconds * 1e9))
    if nanoseconds == 0:
        return "0s"
    sign = "-" if seconds < 0 else ""
    for unit, size in (("ns", 1), ("µs", 1000), ("ms", 1_000_000)):
        if nanoseconds < size * 1000:
            return f"{sign}{_plain(Decimal(nanoseconds) / size)}{unit}"
    minutes, rest = divmod(nanoseconds, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{_plain(Decimal(rest) / 1_000_000_000)}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"

"""Times and durations as the Kubernetes API writes them, from text to seconds and back. Pure.

Times are RFC 3339 strings in UTC, here Unix seconds. Durations are those of Go (``1m30s``).
The current time is always an argument.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from kubeletpy.base.structs import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def format_time(seconds: float) -> str:
    """Write Unix seconds as metav1.Time: whole seconds, ``2026-01-02T03:04:05Z``."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """Write Unix seconds as metav1.MicroTime: six fraction digits."""
    return datetime.fromtimestamp(seconds, UTC).strftime(_MICRO_TIME)


def format_microseconds(microseconds: int) -> str:
    """Write Unix microseconds as metav1.MicroTime, exactly. Raises OverflowError."""
    return (_EPOCH + microseconds * _MICROSECOND).strftime(_MICRO_TIME)


def format_nanoseconds(nanoseconds: int) -> str:
    """Write Unix nanoseconds (the CRI's unit) as metav1.Time."""
    return format_time(nanoseconds // 1_000_000_000)


def parse_time(text: str) -> float:
    """Read an RFC 3339 time as Unix seconds.

    Raises:
        ValueError: not an RFC 3339 time, or a time without an offset.
    """
    return _moment(text).timestamp()


def parse_microseconds(text: str) -> int:
    """Read an RFC 3339 time as Unix microseconds, exactly. Raises ValueError as parse_time."""
    return (_moment(text) - _EPOCH) // _MICROSECOND


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time without an offset: {text!r}")
    return moment


class Moment(Struct, frozen=True):
    """A point in time by both clocks of a machine, comparable over boots.

    Attributes:
        at: Unix seconds by the wall clock.
        boot_id: the kernel's id of the boot.
        since_boot: seconds after that boot, which no setting of the wall clock changes.
        trusted: the network or a battery-backed clock has set the wall clock. A machine without
            either continues from a time that it saved before it lost power.
    """

    at: float
    boot_id: str
    since_boot: float
    trusted: bool = True


# Durations: whatever Go's ``time.ParseDuration`` rejects is rejected here.

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

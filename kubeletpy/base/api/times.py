"""Times as the Kubernetes API writes them: RFC 3339 strings in UTC, here Unix seconds.

Must never read a clock: the time to write is an argument.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

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

"""The cells that most tables of ``kubectl get`` have, and ages as kubectl prints them.

Must never read a clock: the time is an argument. It stands apart because all tables import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.base.api.times import parse_time

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

UNKNOWN = "<unknown>"


def human_duration(seconds: float) -> str:
    """A length of time in the compact form of kubectl: ``5s``, ``2m10s``, ``3h5m``, ``4d``, ``2y``.

    Two or three significant figures. Clocks may disagree by less than two seconds: such times
    print as ``0s``, those further in the future as ``<invalid>``.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _pair(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _pair(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _pair(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _pair(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _pair(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def seconds_of(time: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time; None if there is none or it can't be read."""
    if not time:
        return None
    try:
        return parse_time(time)
    except ValueError:
        return None


def since(time: str | None, now: float) -> str:
    """How long ago a time was; ``<unknown>`` without one. ``now`` in Unix seconds."""
    moment = seconds_of(time)
    return UNKNOWN if moment is None else human_duration(now - moment)


def name_of(obj: JSON) -> str:
    """The cell NAME, empty for an object without one."""
    return str((obj.get("metadata") or {}).get("name", ""))


def age_of(obj: JSON, now: float) -> str:
    """The cell AGE. ``now`` in Unix seconds."""
    return since((obj.get("metadata") or {}).get("creationTimestamp"), now)

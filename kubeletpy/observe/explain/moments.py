"""Moments: read from API objects, and written for people. Pure."""

from __future__ import annotations

from datetime import datetime

from kubeletpy.base.api.times import parse_time
from kubeletpy.observe.explain.texts import ago


def api_time(text: str | None) -> float | None:
    """Unix seconds of an API time; None when the text is no time, or stands for "never".

    Statuses carry the epoch as the start of a run that never began, and Go clients write the year
    1 for a time that is not set.
    """
    try:
        found = parse_time(text) if text else None
    except (ValueError, OverflowError):
        return None
    return None if found is None or found <= 0 else found


def clock_time(at: float, now: float) -> str:
    """Local time of day, ``17:04:05``; with the date when that was another day than ``now``."""
    then, today = (datetime.fromtimestamp(each).astimezone() for each in (at, now))
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def since(at: float, now: float) -> str:
    """When something began: ``17:04:05 (3m12s ago)``."""
    return f"{clock_time(at, now)} ({ago(at, now)})"

"""Watches that keep failing, as text: which, why and since when. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.api.times import format_time
from kubeletpy.explain.words import one_line
from kubeletpy.kubeapi.failing_watches import FailingWatch

MAX_NAMED = 3
"""Watches that fail for the same reason and are named; the rest is counted."""


def failing_watches(found: Sequence[FailingWatch], wall_offset: float) -> list[str]:
    """A sentence for each reason for which watches fail.

    Args:
        wall_offset: added to event-loop seconds, it gives Unix seconds.
    """
    by_reason: dict[str, list[FailingWatch]] = {}
    for each in found:
        by_reason.setdefault(each.reason, []).append(each)
    return [_sentence(why, rows, wall_offset) for why, rows in by_reason.items()]


def _sentence(why: str, rows: Sequence[FailingWatch], wall_offset: float) -> str:
    named = ", ".join(each.what for each in rows[:MAX_NAMED])
    more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
    since = format_time(min(each.since for each in rows) + wall_offset)
    failures = max(each.failures for each in rows)
    begun = f"the watch of {named}{more} has failed since {since} ({failures} times in a row)"
    return one_line(f"{begun}: {why}; changes there are not seen", 1000)

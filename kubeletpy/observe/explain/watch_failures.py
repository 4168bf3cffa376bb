"""Watches that keep failing, as text: which, why and since when. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.kubeapi.watch_state import FailingWatch
from kubeletpy.observe.explain.texts import duration, one_line

MAX_NAMED = 3
"""Watches that fail for the same reason and are named; the rest is counted."""


def failing_watches(found: Sequence[FailingWatch], now: float) -> list[str]:
    """A sentence for each reason for which watches fail.

    Args:
        now: on the event loop's clock.
    """
    by_reason: dict[str, list[FailingWatch]] = {}
    for each in found:
        by_reason.setdefault(each.reason, []).append(each)
    return [_sentence(why, rows, now) for why, rows in by_reason.items()]


def _sentence(why: str, rows: Sequence[FailingWatch], now: float) -> str:
    named = ", ".join(each.target for each in rows[:MAX_NAMED])
    more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
    lasts = duration(now - min(each.since for each in rows))
    failures = max(each.failures for each in rows)
    begun = f"the watch of {named}{more} has failed for {lasts} ({failures} times in a row)"
    return one_line(f"{begun}: {why}; changes there are not seen", 1000)

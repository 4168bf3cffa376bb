"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "explain/facts PodFacts.awaited_plugins": None,
    "explain/causes LONGEST": 800,
    "explain/causes READ": 16 * 1024,
    "explain/from_api MAX_EVENTS": 6,
    "explain/removed_pods KEPT_S": 3600.0,
    "explain/removed_pods MAX_PODS": 100,
    "explain/log_ends MAX_CONTAINERS": 20,
    "explain/log_ends MAX_LINES": 10,
    "explain/phrases MAX_SAID": 200,
    "explain/phrases LATE_S": 3.0,
    "explain/render MAX_VERDICT": 2000,
    "explain/render MAX_CELL": 1000,
    "explain/render_notices MAX_TROUBLE": 1000,
    "explain/watch_failures MAX_NAMED": 3,
    "explain/runs RECENTLY_S": 600.0,
    "explain/containers MAX_EXITS": 20,
    "explain/probes MAX_WORDS": 160,
    "explain/render MAX_DECISIONS": 12,
    "explain/render MAX_ERRORS": 5,
    "explain/render MAX_EXITS": 6,
    "explain/render_pressure MAX_EVICTIONS": 10,
    "explain/render_pressure UNCOUNTABLE": 1 << 64,
    "explain/facts PodFacts.wall_offset": 0.0,
    "explain/facts PodFacts.awaits_admission": False,
    "explain/model Decided.count": 1,
    "explain/timeline Bar.going_on": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

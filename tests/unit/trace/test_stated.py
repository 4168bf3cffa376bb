"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "trace/model MAX_START": 80,
    "trace/model MAX_LATER": 24,
    "trace/model MAX_END": 48,
    "trace/model MAX_OPEN": 40,
    "trace/model SHORT_S": 0.0005,
    "trace/model MAX_TEXT": 300,
    "trace/stalls LONG_S": 0.25,
    "trace/stalls MAX_FRAMES": 12,
    "trace/model PodTrace.dropped": 0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

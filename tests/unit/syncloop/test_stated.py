"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "syncloop/event_stream STEP_NS": 1_000_000_000,
    "syncloop/sources/manifest MAX_MANIFEST": 10 * 1024 * 1024,
    "syncloop/sources/manifest MAX_NODES": 200_000,
    "syncloop/merge _Source.nameless": False,
    "syncloop/merge _Source.seen": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

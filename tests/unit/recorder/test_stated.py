"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "recorder/model FORMAT": 1,
    "recorder/render _WIDTH": 300,
    "recorder/files FILES": 8,
    "recorder/files FEWEST_FILES": 3,
    "recorder/files HEADS": 4,
    "recorder/files MOST_FILES": 256,
    "recorder/files MAX_LINE": 4 << 20,
    "recorder/recorder EVERY_S": 1.0,
    "recorder/recorder MAX_WAITING": 20_000,
    "recorder/recorder MOST_HELD": 8 << 20,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

"""Limits of this room, what a field is that is not given."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "devices/manager RETURNS_WITHIN_S": 120.0,
    "devices/model NO_NODE": -1,
    "devices/names _MAX_DOMAIN": 253,
    "devices/names _MAX_NAME": 63,
    "devices/state FORGOTTEN_AFTER_S": 300.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

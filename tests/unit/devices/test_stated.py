"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "devices/device_manager RETURNS_WITHIN_S": 120.0,
    "devices/model NO_NODE": -1,
    "devices/names _MAX_DOMAIN": 253,
    "devices/names _MAX_NAME": 63,
    "devices/plugin MANY_DEVICES": 500,
    "devices/plugin MAX_DEVICES": 100_000,
    "devices/plugin MAX_GIVEN": 1024,
    "devices/plugin MAX_ID": 1024,
    "devices/registration MAX_RESOURCES": 256,
    "devices/state FORGOTTEN_AFTER_S": 300.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

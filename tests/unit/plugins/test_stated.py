"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "plugins/handshake MAX_ANSWER": 32768,
    "plugins/plugin_manager STARTS": 8,
    "plugins/plan FIRST_WAIT_MS": 500,
    "plugins/plan LONGEST_WAIT_MS": 122_000,
    "plugins/plan Known.busy": False,
    "plugins/plan Known.failures": 0,
    "plugins/plan Known.retry_at": 0.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

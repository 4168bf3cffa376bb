"""Limits of this package and of its command line, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "foresee/change _SHOWN": 10,
    "foresee/model Act.samples": 0,
    "cli/own_api TIMEOUT_S": 5.0,
    "cli/own_api MAX_NEEDS": 200,
    "cli/own_api MAX_PODS": 500,
    "cli/own_api MAX_EVENTS": 100,
    "cli/view_sources PATIENCE_S": 1.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

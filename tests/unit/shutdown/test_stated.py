"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "shutdown/plan CRITICAL_PRIORITY": 2_000_000_000,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "api/nulls MOST_SHARED": 2048,
    "api/nulls MOST_TEXT": 128 << 10,
    "api/nulls LONGEST_SHARED": 64,
    "api/quantity _MAX_TEXT": 64,
    "api/scrub MAX_DETAILS": 4096,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

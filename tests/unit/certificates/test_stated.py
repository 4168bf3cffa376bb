"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "certificates/rotation EARLIEST": 0.7,
    "certificates/rotation SPREAD": 0.2,
    "certificates/rotation CLIENT_LOST_S": 300.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

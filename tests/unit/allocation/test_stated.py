"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "allocation/feasibility ResizeRules.in_place": True,
    "allocation/feasibility ResizeRules.pod_level": True,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

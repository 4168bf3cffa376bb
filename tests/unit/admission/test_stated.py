"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "admission/facts NodeState.apparmor": True,
    "admission/facts NodeState.pod_level_resources": True,
    "admission/facts NodeState.shutting_down": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

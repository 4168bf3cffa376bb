"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "events/kept MAX_EVENTS": 20,
    "events/kept MAX_MESSAGE": 1024,
    "events/kept MAX_PODS": 200,
    "events/correlate WINDOW": 600.0,
    "events/correlate SIMILAR_MAX": 10,
    "events/correlate SPAM_BURST": 25.0,
    "events/correlate SPAM_REFILL": 300.0,
    "events/correlate REMEMBERED": 4096,
    "events/correlate MESSAGE_MAX": 1024,
    "events/correlate _Known.first": 0.0,
    "events/correlate _Known.count": 0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

"""Limits of this package."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "view/feed MAX_LOG_LINE": 300,
    "view/feed MAX_LOG_LINES": 10,
    "view/feed MAX_NAME": 260,
    "view/feed MAX_PODS": 1000,
    "view/feed MAX_ROWS": 40,
    "view/feed MAX_TEXT": 1200,
    "view/history GAP_S": 30.0,
    "view/history MAX_SAMPLES": 120,
    "view/server EVERY_S": 1.0,
    "view/server MAX_CONNECTIONS": 64,
    "view/server MAX_PAGE": 64 * 1024,
    "view/server MAX_STREAMS": 8,
    "view/server WRITE_S": 10.0,
    "view/waterfall MAX_BESIDE": 5,
    "view/waterfall MAX_ERROR": 600,
    "view/waterfall MAX_LABEL": 200,
    "view/waterfall NOTICEABLE_S": 0.0005,
    "view/watcher PATIENCE_S": 0.5,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

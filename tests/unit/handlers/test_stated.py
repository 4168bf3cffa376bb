"""Limits of this room, what a field is that is not given."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "handlers/http_response MAX_HEAD": 64 * 1024,
    "handlers/http_response MAX_INTERIM": 64,
    "handlers/http_response MAX_CHUNK_LINE": 256,
    "handlers/http_response MAX_CHUNK_EXCESS": 16 * 1024,
    "handlers/http_response _UNSEARCHED": 3,
    "handlers/outcome KEPT_OUTPUT": 10 * 1024,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

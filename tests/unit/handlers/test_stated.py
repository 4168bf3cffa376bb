"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "handlers/http MAX_LOCATION": 8 * 1024,
    "handlers/http READ_BYTES": 16 * 1024,
    "handlers/http FREE_READS": 64,
    "handlers/http READ_PAUSE_S": 0.02,
    "handlers/http_response MAX_HEAD": 64 * 1024,
    "handlers/http_response MAX_INTERIM": 64,
    "handlers/http_response MAX_CHUNK_LINE": 256,
    "handlers/http_response MAX_CHUNK_EXCESS": 16 * 1024,
    "handlers/http_response MAX_CHUNKS": 256,
    "handlers/http_response _UNSEARCHED": 2,
    "handlers/outcome KEPT_OUTPUT": 10 * 1024,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "remote/grpc_message MAX_DETAILS": 1024,
    "remote/unary_call FIRST_RETRY_S": 0.1,
    "remote/unary_call LAST_RETRY_S": 0.5,
    "remote/timeouts DEFAULT_REQUEST_TIMEOUT": 120.0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

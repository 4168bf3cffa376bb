"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "server/logs/rotate _COMPRESSED_SIZES": 16,
    "server/logs/rotate _COMPRESSED_AT_LEAST": 256 << 20,
    "server/logs/records MAX_LINE": 1 << 20,
    "server/logs/records CLOCK_STEP_S": 60.0,
    "server/node_logs/patterns _MOST_REPEATS": 1000,
    "server/node_logs/query MAX_SERVICES": 4,
    "server/node_logs/query MAX_SERVICE_LENGTH": 256,
    "server/node_logs/query MAX_LINES": 100_000,
    "server/node_logs/query MAX_PATTERN": 1024,
    "server/streaming/options MAX_PORTS": 64,
    "server/streaming/options MAX_DIGITS": 16,
    "server/debug/profile_proto Weight.samples": 0,
    "server/debug/profile_proto Weight.nanoseconds": 0,
    "server/logs/choice LogOptions.follow": False,
    "server/logs/choice LogOptions.previous": False,
    "server/logs/choice LogOptions.timestamps": False,
    "server/routes Route.debugging": False,
    "server/routes Route.debugging_only": False,
    "server/routes Route.read_only": False,
    "server/routes Route.long_running": False,
    "server/routes Route.any_method": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

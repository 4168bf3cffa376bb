"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED: dict[str, object] = {
    "dra/answers MAX_DEVICES": 4096,
    "dra/answers MAX_NAMES": 4096,
    "dra/answers _MAX_CDI": 512,
    "dra/answers _MAX_NAME": 253,
    "dra/client PART_DEVICES": 500,
    "dra/health TIMEOUT_S": 30.0,
    "dra/health MAX_TEXT": 1024,
    "dra/health MAX_DEVICES": 16384,
    "dra/health MAX_TIMEOUT_S": 10 * 365 * 86400.0,
    "dra/claims ClaimUse.owned": False,
    "dra/model ClaimInfo.prepared": False,
    "dra/model ClaimInfo.restored": False,
    "dra/health _STATES": {1: "Healthy", 2: "Unhealthy"},
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

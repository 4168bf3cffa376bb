"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "status/container_status LOST_EXIT_CODE": 137,
    "status/reported_resources MIN_MILLI_LIMIT": 10,
    "status/reported_resources MIN_MILLI_REQUEST": 2,
    "status/store MESSAGE_BYTES_PER_POD": 12288,
    "status/container_status ContainerStatusInputs.restarting_all": False,
    "status/container_status ContainerStatusInputs.recursive_read_only": False,
    "status/generate StatusInputs.terminated": False,
    "status/generate StatusInputs.restarting_all": False,
    "status/generate StatusInputs.agent_started_at": 0.0,
    "status/generate StatusInputs.recursive_read_only": False,
    "status/phase _Seen.init_failed_for_good": False,
    "status/phase _Seen.pending": False,
    "status/phase _Seen.sidecar_pending": False,
    "status/phase _Seen.running": False,
    "status/phase _Seen.restartable": False,
    "status/phase _Seen.unsuccessful": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

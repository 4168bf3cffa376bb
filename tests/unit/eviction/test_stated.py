"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED: dict[str, object] = {
    "eviction/local_storage GRACE_S": 1,
    "eviction/local_storage SHOWN": 5,
    "eviction/local_storage AT_ONCE": 4,
    "eviction/next_look PERIOD_S": 10.0,
    "eviction/next_look LEAST_S": 0.1,
    "eviction/next_look CONFIRM_S": 0.05,
    "eviction/next_look BYTES_A_SECOND": 1 << 30,
    "eviction/next_look DISK_BYTES_A_SECOND": 512 << 20,
    "eviction/next_look INODES_A_SECOND": 100_000,
    "eviction/next_look TASKS_A_SECOND": 10_000,
    "eviction/next_look GROWTH": 2,
    "eviction/ranking LAYERS_S": 12.0,
    "eviction/report SHOWN": 5,
    "eviction/settling LAYER_S": 10.0,
    "eviction/settling GARBAGE_S": 2.0,
    "eviction/settling EARLY_S": 60.0,
    "eviction/settling STILL_S": 0.4,
    "eviction/settling MOST": 0.9,
    "eviction/signals STALE_S": 15.0,
    "eviction/thresholds DEFAULT_TRANSITION_S": 300.0,
    "eviction/decide EvictionDecision.unsure": False,
    "eviction/pod_use DiskUse.layers": (0, 0),
    "eviction/pod_use DiskUse.logs": (0, 0),
    "eviction/pod_use DiskUse.volumes": (0, 0),
    "eviction/pod_use DiskUse.pending": False,
    "eviction/pod_use Use.memory": 0,
    "eviction/pod_use Use.tasks": 0,
    "eviction/report EvictionRecord.helped": False,
    "eviction/settling Awaited.written": 0,
    "eviction/thresholds Amount.share": 0.0,
    "eviction/thresholds Threshold.grace": 0.0,
    "eviction/thresholds Rules.max_grace": 0,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "podworkers/terminating_updates FIRST_S": 1.0,
    "podworkers/troubles MAX_PODS": 500,
    "podworkers/troubles OVER_S": 600.0,
    "podworkers/history REPEATS": 6,
    "podworkers/reason_cache MAX_PODS": 1000,
    "podworkers/requeue MIN_GRACE": 1,
    "podworkers/requeue SHORTEST_WAIT": 0.001,
    "podworkers/requeue AFTER_DUE": 0.1,
    "podworkers/history HistoryEntry.count": 1,
    "podworkers/history HistoryEntry.last_at": 0.0,
    "podworkers/protocol KillOptions.evict": False,
    "podworkers/protocol PodUpdate.received_at": 0.0,
    "podworkers/protocol SyncOutcome.terminal": False,
    "podworkers/protocol SyncOutcome.network_not_ready": False,
    "podworkers/protocol SyncOutcome.waiting": False,
    "podworkers/records Work.received_at": 0.0,
    "podworkers/records WorkerRecord.first_seen_at": 0.0,
    "podworkers/records WorkerRecord.deleted": False,
    "podworkers/records WorkerRecord.evicted": False,
    "podworkers/records WorkerRecord.finished": False,
    "podworkers/records WorkerRecord.restart_requested": False,
    "podworkers/records WorkerRecord.observed_runtime": False,
    "podworkers/records UpdateArrived.runtime_quiet": False,
    "podworkers/records SyncEnded.jitter": 0.0,
    "podworkers/records RunSync.grace": 1,
    "podworkers/requeue RequeueSettings.sync_frequency": 60.0,
    "podworkers/requeue RequeueSettings.error_backoff": 10.0,
    "podworkers/requeue RequeueSettings.network_backoff": 1.0,
    "podworkers/requeue RequeueSettings.tick": 0.0,
    "podworkers/requeue TICK_S": 2.0,
    "podworkers/status_cache CacheEntry.fresh": True,
    "podworkers/status_cache CacheEntry.own": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)

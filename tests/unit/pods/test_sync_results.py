"""Results of a runtime sync."""

from __future__ import annotations

import pytest

from kubeletpy.pods.runtime_status import PodSyncResult, StartError, SyncAction, SyncResult

REMOVED = StartError("RuntimeGone", "no answer")
STARTED = SyncResult(SyncAction.START_CONTAINER, "app")
HELD_BACK = SyncResult(SyncAction.START_CONTAINER, "db", StartError("CrashLoopBackOff", "wait"))
SAID = "failed to StartContainer for db with CrashLoopBackOff: wait"


@pytest.mark.parametrize(
    ("results", "sync_error", "message"),
    [
        ((), None, ""),
        ((STARTED,), None, ""),
        ((STARTED, HELD_BACK), None, SAID),
        ((STARTED,), REMOVED, "no answer"),
        ((HELD_BACK, STARTED, HELD_BACK), REMOVED, f"no answer; {SAID}; {SAID}"),
    ],
)
def test_all_failures_on_one_line(
    results: tuple[SyncResult, ...], sync_error: StartError | None, message: str
) -> None:
    result = PodSyncResult(results, sync_error=sync_error)
    assert (result.error_message(), result.failed) == (message, bool(message))

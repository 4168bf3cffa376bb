"""The delay before a worker's next sync, and the grace period of a pod."""

from __future__ import annotations

import pytest

from kubeletpy.podworkers.records import SyncOutcome
from kubeletpy.podworkers.state_machine import (
    RequeueSettings,
    effective_grace,
    requeue_delay,
    tick_of,
)
from tests.unit.podworkers.builders import make_pod


@pytest.mark.parametrize(
    ("current", "deletion", "override", "expected"),
    [
        (None, None, None, 30),
        (None, 10, None, 10),
        (None, 10, 5, 5),
        (None, 10, 20, 10),
        (5, 10, 20, 5),
        (5, None, 3, 3),
        (None, 0, None, 1),
        (None, None, 0, 1),
        (20, None, None, 20),
    ],
)
def test_grace(
    current: int | None, deletion: int | None, override: int | None, expected: int
) -> None:
    assert effective_grace(current, make_pod(deleting=deletion), override) == expected


@pytest.mark.parametrize(
    ("outcome", "delay"),
    [
        (SyncOutcome(), 60.0 * 1.25),
        (SyncOutcome(error="no", network_not_ready=True), 1.25),
        (SyncOutcome(error="backoff", retry_at=1007.5), 7.5),
        (SyncOutcome(error="backoff over", retry_at=990.0), 0.1),
        (SyncOutcome(error="far", retry_at=9999.0, waiting=True), 75.0),
        (SyncOutcome(error="far, and something else", retry_at=9999.0), 12.5),
        (SyncOutcome(deadline=1003.5), 3.5),
        (SyncOutcome(deadline=990.0), 0.1),
        (SyncOutcome(error="other", deadline=9999.0), 12.5),
        (SyncOutcome(error="backoff", retry_at=1007.5, deadline=1002.0), 2.0),
        (SyncOutcome(retry_at=1030.0), 30.0),
        (SyncOutcome(error="other"), 12.5),
        (None, 12.5),
    ],
)
def test_requeue(outcome: SyncOutcome | None, delay: float) -> None:
    assert requeue_delay(outcome, 1000.0, 0.25, RequeueSettings()) == pytest.approx(delay)


@pytest.mark.parametrize(
    ("frequency", "jitter", "now", "delay"),
    [
        (60.0, 0.0, 1000.0, 60.0),
        (60.0, 0.0, 1000.5, 61.5),
        (60.0, 0.02, 1000.5, 61.5),
        (60.0, 0.5, 1000.0, 90.0),
        (60.0, 0.49, 1001.9, 88.1),
        (60.0, 0.5, 1001.9, 88.1),
        (1.0, 0.0, 1000.3, 1.2),
        (1.0, 0.49, 1000.3, 1.2),
        (1.0, 0.5, 1000.0, 1.5),
    ],
)
def test_pods_with_nothing_due_are_synced_together(
    frequency: float, jitter: float, now: float, delay: float
) -> None:
    settings = RequeueSettings(sync_frequency=frequency, tick=2.0)
    assert requeue_delay(SyncOutcome(), now, jitter, settings) == pytest.approx(delay)


def test_nodes_tick_at_different_times() -> None:
    ticks = [tick_of(f"node-{number}") for number in range(200)]
    assert len(set(ticks)) == 200
    assert 1.8 <= min(ticks) < 1.85
    assert 2.15 < max(ticks) <= 2.2
    assert tick_of("node-7") == ticks[7]


SETTINGS = RequeueSettings(sync_frequency=60.0, error_backoff=10.0, network_backoff=2.0)
QUICK = RequeueSettings(sync_frequency=4.0, error_backoff=10.0, network_backoff=2.0)


@pytest.mark.parametrize(
    ("outcome", "settings", "delay"),
    [
        (None, QUICK, 6.0),
        (SyncOutcome(error="no"), QUICK, 6.0),
        (SyncOutcome(error="no", retry_at=109.0), QUICK, 6.0),
        (SyncOutcome(error="no", retry_at=103.0), QUICK, 3.0),
        (SyncOutcome(error="no", retry_at=109.0, waiting=True), QUICK, 6.0),
        (SyncOutcome(network_not_ready=True), SETTINGS, 3.0),
        # at once, but not without end
        (SyncOutcome(retry_at=100.0), SETTINGS, 0.1),
        (SyncOutcome(retry_at=100.0001), SETTINGS, 0.001),
        (SyncOutcome(retry_at=100.01), SETTINGS, 0.01),
        (SyncOutcome(deadline=100.0), SETTINGS, 0.1),
        (SyncOutcome(deadline=100.0001), SETTINGS, 0.001),
        (SyncOutcome(deadline=100.01), SETTINGS, 0.01),
        (SyncOutcome(deadline=500.0), SETTINGS, 90.0),
        (SyncOutcome(retry_at=140.0), SETTINGS, 40.0),
        (SyncOutcome(retry_at=500.0), SETTINGS, 90.0),
        (SyncOutcome(error="no", retry_at=140.0), SETTINGS, 15.0),
        (SyncOutcome(error="no", retry_at=140.0, waiting=True), SETTINGS, 40.0),
    ],
)
def test_when_to_sync_again(
    outcome: SyncOutcome | None, settings: RequeueSettings, delay: float
) -> None:
    assert requeue_delay(outcome, 100.0, 0.5, settings) == pytest.approx(delay)

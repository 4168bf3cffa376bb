"""Calls a second, with a burst."""

from __future__ import annotations

from kubeletpy.remote.local_server import Rate


def test_rate() -> None:
    rate = Rate(100, 10)
    assert [rate.takes(5.0) for _ in range(11)] == [True] * 10 + [False]
    assert rate.takes(5.011)
    assert not rate.takes(5.012)

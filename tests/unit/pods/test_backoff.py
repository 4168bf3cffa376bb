"""Exponential backoff by key."""

from __future__ import annotations

from kubeletpy.pods.backoff import ExponentialBackoff


def test_doubles_to_its_maximum() -> None:
    backoff = ExponentialBackoff(10, 300, 600)
    delays = [backoff.next("k", event_at=t, now=t) for t in range(7)]
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    assert backoff.next("other", 0, 0) == 10


def test_a_base_above_the_maximum_is_lowered() -> None:
    assert ExponentialBackoff(10, 3, 600).next("k", 0, 0) == 3


def test_window_from_an_event() -> None:
    backoff = ExponentialBackoff(10, 300, 600)
    assert backoff.due_at("k", event_at=100, now=100) is None
    backoff.next("k", 100, 100)
    assert backoff.due_at("k", event_at=105, now=106) == 115
    assert backoff.due_at("k", event_at=105, now=115) is None


def test_a_quiet_time_starts_from_the_base() -> None:
    backoff = ExponentialBackoff(10, 300, 600)
    backoff.next("k", 0, 0)
    backoff.next("k", 0, 0)
    assert backoff.next("k", 600, 600) == 40
    assert backoff.due_at("k", 1201, 1201) is None
    assert backoff.next("k", 1201, 1201) == 10


def test_collect_drops_expired_entries() -> None:
    backoff = ExponentialBackoff(10, 300, 600)
    backoff.next("old", 0, 0)
    backoff.next("new", 1, 1)
    backoff.collect(601)
    assert len(backoff) == 1
    assert backoff.state("new", 601) is not None


def test_bounded() -> None:
    backoff = ExponentialBackoff(10, 300, 600, capacity=2)
    for key in ("a", "b", "a", "c"):
        backoff.next(key, 0, 0)
    assert len(backoff) == 2
    assert backoff.state("b", 0) is None
    assert backoff.next("a", 0, 0) == 40

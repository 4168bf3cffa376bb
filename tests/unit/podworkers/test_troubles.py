"""Since when the syncs of a pod have failed."""

from __future__ import annotations

import pytest

from kubeletpy.podworkers.history import MAX_TROUBLED_PODS, OVER_S, Troubles


@pytest.mark.parametrize(
    ("failures", "now", "since"),
    [
        ([], 0.0, None),
        ([100.0], 100.0, 100.0),
        ([100.0, 160.0, 220.0], 250.0, 100.0),
        ([100.0, 100.0 + OVER_S], 100.0 + 2 * OVER_S, 100.0),
        ([100.0, 101.0 + OVER_S], 101.0 + OVER_S, 101.0 + OVER_S),
        ([100.0], 101.0 + OVER_S, None),
        ([100.0, 100.0], 110.0, 100.0),
        ([100.0, 100.5], 110.0, 100.0),
        ([100.0, 50.0], 60.0, 50.0),
        ([100.0, 99.5], 110.0, 99.5),
    ],
)
def test_since(failures: list[float], now: float, since: float | None) -> None:
    troubles = Troubles()
    for at in failures:
        troubles.failed("a", at)
    assert troubles.since("a", now) == since
    assert troubles.since("b", now) is None


def test_the_oldest_failures_are_dropped_first_and_removed_pods_at_once() -> None:
    troubles = Troubles()
    for number in range(MAX_TROUBLED_PODS):
        troubles.failed(str(number), number / 1000)
    troubles.failed("0", 2.0)
    troubles.failed("one more", 2.0)
    assert troubles.since("0", 2.0) == 0.0
    assert troubles.since("1", 2.0) is None
    troubles.removed("0")
    troubles.removed("never known")
    assert troubles.since("0", 2.0) is None


@pytest.mark.parametrize(
    ("kept", "since"),
    [
        ({"a": [100.0, 500.0]}, 100.0),
        ({"a": [100, 500]}, 100.0),
        ({"a": [100.0, 600.0 - OVER_S]}, 100.0),
        ({"a": [100.0, 600.0 - OVER_S - 1]}, 600.0),
        ({"a": "x", "b": [1]}, 600.0),
        ({"a": [1, 2, 3]}, 600.0),
        ({"a": ["1", None]}, 600.0),
    ],
)
def test_troubles_restored_from_an_earlier_agent(kept: dict[str, object], since: float) -> None:
    troubles = Troubles()
    troubles.failed("a", 600.0)
    troubles.restore({"failing": kept})
    assert troubles.since("a", 600.0) == since


def test_troubles_survive_a_round_trip() -> None:
    before, after = Troubles(), Troubles()
    before.failed("a", 1.0)
    before.failed("a", 2.0)
    before.ends("b", 3.0)
    after.restore(before.as_json())
    assert after.as_json() == {"failing": {"a": [1.0, 2.0]}, "ends": {"b": 3.0}}


def test_the_first_end_of_a_pod_counts_also_that_of_an_earlier_agent() -> None:
    troubles = Troubles()
    troubles.ends("a", 5.0)
    troubles.ends("a", 6.0)
    troubles.ends("b", 7.0)
    assert (troubles.ended_at("a"), troubles.ended_at("none")) == (5.0, None)
    troubles.restore({"ends": {"a": 2, "c": 4.5, "d": "x", "e": None}})
    assert [troubles.ended_at(uid) for uid in "abcde"] == [2.0, 7.0, 4.5, None, None]
    troubles.no_end("a")
    troubles.no_end("never known")
    assert troubles.ended_at("a") is None


@pytest.mark.parametrize("kept", [{"ends": [1]}, {"failing": 3, "ends": None}, {"x": {"a": 1}}])
def test_malformed_notes_are_ignored(kept: dict[str, object]) -> None:
    troubles = Troubles()
    troubles.restore(kept)
    assert troubles.as_json() == {}


def test_the_oldest_ends_go_first() -> None:
    troubles = Troubles()
    for number in range(MAX_TROUBLED_PODS + 1):
        troubles.ends(str(number), float(number))
    assert troubles.ended_at("0") is None
    assert troubles.ended_at("1") == 1.0
    troubles.restore({"ends": {f"old-{number}": 1.0 for number in range(MAX_TROUBLED_PODS)}})
    assert len(troubles.as_json()["ends"]) == MAX_TROUBLED_PODS

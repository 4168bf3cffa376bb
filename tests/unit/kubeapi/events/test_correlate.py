"""Events written for observed ones: counting, combining, rate limits."""

from __future__ import annotations

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.correlate import (
    COMBINED,
    REMEMBERED,
    Correlator,
    Count,
    Create,
    Drop,
    ObjectEvent,
    cut,
)

POD: api.ObjectReference = {"kind": "Pod", "namespace": "n", "name": "p", "uid": "u"}
NOW = 1_700_000_000.0


def see(
    correlator: Correlator, message: str, at: float, reason: str = "R", **ref: str
) -> Create | Count | Drop:
    involved: api.ObjectReference = {**POD, **ref}  # type: ignore[typeddict-item]
    return correlator.correlate(ObjectEvent(involved, "Normal", reason, message), NOW + at)


def test_a_new_event_is_complete() -> None:
    decision = see(Correlator("kubelet", "m"), "hello", 0.5, fieldPath="spec.containers{c}")
    assert isinstance(decision, Create)
    assert decision.obj == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"p.{int((NOW + 0.5) * 1e9):x}", "namespace": "n"},
        "involvedObject": {**POD, "fieldPath": "spec.containers{c}"},
        "type": "Normal",
        "reason": "R",
        "message": "hello",
        "source": {"component": "kubelet", "host": "m"},
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
        "reportingComponent": "kubelet",
        "reportingInstance": "m",
    }


def test_the_same_event_is_counted_for_ten_minutes() -> None:
    correlator = Correlator("kubelet", "m")
    first = see(correlator, "same", 0)
    second = see(correlator, "same", 599)
    third = see(correlator, "same", 599 + 600)
    late = see(correlator, "same", 599 + 600 + 601)
    assert isinstance(first, Create)
    assert isinstance(second, Count)
    assert isinstance(third, Count)
    assert third.patch == {"count": 3, "lastTimestamp": "2023-11-14T22:33:19Z", "message": "same"}
    assert third.obj["metadata"] == first.obj["metadata"]
    assert third.obj["firstTimestamp"] == first.obj["firstTimestamp"]
    assert isinstance(late, Create)
    assert late.obj["metadata"] != first.obj["metadata"]


@pytest.mark.parametrize(
    "other",
    [{"uid": "u2"}, {"name": "q"}, {"namespace": "o"}, {"fieldPath": "x"}, {"kind": "Node"}],
)
def test_other_objects_are_other_events(other: dict[str, str]) -> None:
    correlator = Correlator("kubelet", "m")
    see(correlator, "same", 0)
    assert isinstance(see(correlator, "same", 1, **other), Create)


def test_more_than_ten_similar_are_combined() -> None:
    correlator = Correlator("kubelet", "m")
    for index in range(10):
        assert isinstance(see(correlator, f"message {index}", index), Create)
    eleventh = see(correlator, "message 10", 10)
    twelfth = see(correlator, "message 11", 11)
    assert isinstance(eleventh, Create)
    assert eleventh.obj["message"] == COMBINED + "message 10"
    assert isinstance(twelfth, Count)
    assert twelfth.patch["message"] == COMBINED + "message 11"
    assert twelfth.patch["count"] == 2
    known = see(correlator, "message 3", 12)
    assert isinstance(known, Count)
    assert known.patch["message"] == "message 3"
    assert isinstance(see(correlator, "message 12", 12, reason="Other"), Create)
    still = see(correlator, "message 98", 12 + 600)
    assert isinstance(still, Create)
    assert still.obj["message"] == COMBINED + "message 98"
    after = see(correlator, "message 99", 12 + 600 + 601)
    assert isinstance(after, Create)
    assert after.obj["message"] == "message 99"


def test_a_flood_about_one_object_is_cut_off() -> None:
    correlator = Correlator("kubelet", "m")
    written = [see(correlator, "x", index * 0.01) for index in range(100)]
    assert sum(not isinstance(each, Drop) for each in written) == 25
    assert isinstance(see(correlator, "y", 2, fieldPath="other"), Drop)
    assert isinstance(see(correlator, "x", 2, name="other"), Create)
    assert isinstance(see(correlator, "x", 2, uid="other"), Create)
    again = see(correlator, "x", 302)
    assert isinstance(again, Count)
    assert again.patch["count"] == 101
    assert isinstance(see(correlator, "x", 303), Drop)


def test_an_event_that_was_cut_off_from_the_start_is_created_later() -> None:
    correlator = Correlator("kubelet", "m")
    for index in range(25):
        see(correlator, "x", index * 0.01)
    assert isinstance(see(correlator, "new", 1, reason="New"), Drop)
    assert isinstance(see(correlator, "new", 400, reason="New"), Create)


@pytest.mark.parametrize("step", [0.0, -1.0])
def test_a_clock_that_stops_or_goes_back_changes_no_limit(step: float) -> None:
    correlator = Correlator("kubelet", "m")
    written = [see(correlator, "x", index * step) for index in range(400)]
    assert sum(not isinstance(each, Drop) for each in written) == 25


@pytest.mark.parametrize(("at", "first"), [(0.0, int(NOW * 1e9)), (-NOW, 1)])
def test_names_are_unique_even_at_one_instant(at: float, first: int) -> None:
    correlator = Correlator("kubelet", "m")
    decisions = [see(correlator, f"{index}", at) for index in range(5)]
    names = [each.obj["metadata"]["name"] for each in decisions if isinstance(each, Create)]
    assert names == [f"p.{first + index:x}" for index in range(5)]


def test_annotations_are_the_new_events() -> None:
    correlator = Correlator("kubelet", "m")
    seen = ObjectEvent(POD, "Normal", "R", "hello", {"a": "b"})
    created, counted = correlator.correlate(seen, NOW), correlator.correlate(seen, NOW)
    assert isinstance(created, Create)
    assert created.obj["metadata"]["annotations"] == {"a": "b"}
    assert isinstance(counted, Count)
    assert set(counted.patch) == {"count", "lastTimestamp", "message"}


def test_a_node_has_its_events_in_the_default_namespace() -> None:
    correlator = Correlator("kubelet", "m")
    node: api.ObjectReference = {"kind": "Node", "name": "m", "uid": "m"}
    decision = correlator.correlate(ObjectEvent(node, "Normal", "NodeReady", "ready"), NOW)
    assert isinstance(decision, Create)
    assert decision.obj["metadata"]["namespace"] == "default"


def test_memory_is_bounded() -> None:
    correlator = Correlator("kubelet", "m")
    for index in range(2 * REMEMBERED):
        see(correlator, "x", index / 100, name=f"p{index}")
    assert _remembered(correlator) == [REMEMBERED] * 3
    newest = see(correlator, "x", 2 * REMEMBERED / 100, name=f"p{2 * REMEMBERED - 1}")
    assert isinstance(newest, Count)


def test_what_no_longer_counts_is_forgotten() -> None:
    correlator = Correlator("kubelet", "m")
    for index in range(REMEMBERED):
        see(correlator, "x", index, name=f"p{index}")
    assert _remembered(correlator) == [601, 601, REMEMBERED]  # a full bucket takes 7,500 s
    see(correlator, "x", REMEMBERED + 7500, name="last")
    assert _remembered(correlator) == [1, 1, 1]


def test_a_clock_that_is_set_back_loses_no_count() -> None:
    correlator = Correlator("kubelet", "m")
    see(correlator, "x", 5000)
    see(correlator, "y", 0)
    assert isinstance(see(correlator, "x", 10), Count)
    assert isinstance(see(correlator, "y", 700), Create)


def _remembered(correlator: Correlator) -> list[int]:
    memories = (correlator._known, correlator._similar, correlator._buckets)
    return [len(each._items) for each in memories]


@pytest.mark.parametrize(
    ("message", "desired"),
    [("a" * 1024, "a" * 1024), ("a" * 1025, "a" * 1021 + "..."), ("ä" * 600, "ä" * 510 + "..."),
     ("\ud800", "?")],
)  # fmt: skip
def test_messages_are_cut(message: str, desired: str) -> None:
    assert cut(message) == desired

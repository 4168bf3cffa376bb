"""The latest events of each pod: kept, counted, bounded, and forwarded."""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, node_reference
from kubeletpy.kubeapi.events.writer import MAX_EVENTS, MAX_MESSAGE, MAX_PODS, KeptEvents
from tests.kit.clocks import SetClock


class Handed:
    """Events that the next recorder gets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def event(self, *event: Any, **more: Any) -> None:
        self.seen.append((*event, more))


def pod(uid: str = "uid", path: str = "") -> api.ObjectReference:
    made: api.ObjectReference = {"kind": "Pod", "namespace": "default", "name": "web", "uid": uid}
    if path:
        made["fieldPath"] = path
    return made


def kept() -> tuple[KeptEvents, Handed]:
    to = Handed()
    return KeptEvents(to, SetClock(0.0, tick=1.0)), to


def test_kept_events_are_forwarded_unchanged() -> None:
    events, to = kept()
    events.event(pod(), WARNING, Reason.FAILED, "m", annotations={"a": "b"})
    events.event(node_reference("n"), NORMAL, Reason.STARTING, "Starting kubelet.")
    assert to.seen == [
        (pod(), WARNING, Reason.FAILED, "m", {"annotations": {"a": "b"}}),
        (
            *(node_reference("n"), NORMAL, Reason.STARTING, "Starting kubelet."),
            {"annotations": None},
        ),
    ]
    assert [each.reason for each in events.events("uid")] == ["Failed"]
    assert events.events("n") == events.events("other") == []


def test_a_repeated_event_is_counted_and_moves_to_the_end() -> None:
    events, _ = kept()
    for message in ("a", "b", "a"):
        events.event(pod(path="spec.containers{main}"), NORMAL, Reason.PULLED, message)
    events.event(pod(), NORMAL, Reason.PULLED, "a")
    found = [(e.message, e.count, e.first_at, e.at, e.field_path) for e in events.events("uid")]
    assert found == [
        ("b", 1, 2.0, 2.0, "spec.containers{main}"),
        ("a", 2, 1.0, 3.0, "spec.containers{main}"),
        ("a", 1, 4.0, 4.0, ""),
    ]


def test_kept_events_are_bounded() -> None:
    """Events, their length and pods are bounded; least recently updated pods are removed first."""
    events, _ = kept()
    for number in range(MAX_EVENTS + 1):
        events.event(pod(), NORMAL, Reason.PULLED, f"{number} " + "x" * 5000)
    assert [each.message[:2] for each in events.events("uid")][:1] == ["1 "]
    assert len(events.events("uid")) == MAX_EVENTS
    assert {len(each.message) for each in events.events("uid")} == {MAX_MESSAGE}
    for number in range(MAX_PODS - 1):
        events.event(pod(f"other-{number}"), NORMAL, Reason.PULLED, "m")
    events.event(pod(), NORMAL, Reason.PULLED, "news")
    events.event(pod("one more"), NORMAL, Reason.PULLED, "m")
    assert events.events("other-0") == []
    assert events.events("other-1") != []
    assert events.events("uid")[-1].message == "news"

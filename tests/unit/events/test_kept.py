"""The latest events of each pod: kept, counted, bounded, and handed on."""

from __future__ import annotations

from typing import Any

from kubeletpy.api import types as api
from kubeletpy.events.kept import MAX_EVENTS, MAX_MESSAGE, MAX_PODS, KeptEvents
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import NORMAL, WARNING, node_reference


class Handed:
    """What the next recorder gets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def event(self, *event: Any, **more: Any) -> None:
        self.seen.append((*event, more))


class Ticks:
    """A clock that goes on by a second each time it is asked."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        self.at += 1
        return self.at


def pod(uid: str = "uid", path: str = "") -> api.ObjectReference:
    made: api.ObjectReference = {"kind": "Pod", "namespace": "default", "name": "web", "uid": uid}
    if path:
        made["fieldPath"] = path
    return made


def kept() -> tuple[KeptEvents, Handed]:
    to = Handed()
    return KeptEvents(to, Ticks()), to


def test_what_is_kept_is_handed_on_as_it_came() -> None:
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


def test_the_same_again_counts_and_comes_last() -> None:
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


def test_it_is_bounded() -> None:
    """In events of a pod, their length, and pods: those without news for the longest time go."""
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

"""Volumes that only wait for the API's first answer."""

from __future__ import annotations

import pytest

from kubeletpy.kubeapi.errors import Forbidden, NoAnswerYet, Unavailable
from kubeletpy.volumes.pod_volumes.planned import EVENT_AFTER_S, Unanswered, waits_only

SILENT, OTHER = NoAnswerYet("no answer"), Unavailable("500")


@pytest.mark.parametrize(
    ("sources", "waits"),
    [
        ([SILENT], True),
        ([SILENT, SILENT, {"data": {}}], True),
        ([SILENT, OTHER], False),
        ([SILENT, None], False),
        ([SILENT, Forbidden("no")], False),
        ([OTHER], False),
        ([None], False),
        ([{"data": {}}], False),
        ([], False),
    ],
)
def test_a_volume_waits_if_only_answers_are_missing(sources: list[object], waits: bool) -> None:
    assert waits_only(sources) is waits


def test_it_is_an_event_when_it_lasts() -> None:
    pod = Unanswered()
    assert pod.is_event("v", 100.0), "nobody waits for it"
    pod.seen(["v"], 100.0)
    assert not pod.is_event("v", 100.0)
    pod.seen(["v", "w"], 105.0)
    assert pod.is_event("x", 105.0)
    before = 100.0 + EVENT_AFTER_S - 0.1
    assert not pod.is_event("v", before)
    assert pod.is_event("v", before + 0.1)
    assert not pod.is_event("w", before + 0.1), "each has its own time"


def test_an_answer_ends_it() -> None:
    pod = Unanswered()
    pod.seen(["v"], 0.0)
    pod.seen([], 1.0)
    assert pod.is_event("v", 1.0), "what is wrong now is something else"
    pod.seen(["v"], 20.0)
    assert not pod.is_event("v", 20.0)

"""What the trace of a pod keeps of each part of its life."""

from __future__ import annotations

import pytest

from kubeletpy.trace.model import MAX_END, MAX_LATER, MAX_START, Chapter, PodTrace, Span
from kubeletpy.trace.names import Call


def span(number: int) -> Span:
    return Span(Call.PULL_IMAGE, str(number), float(number), number + 1.0)


def numbers(spans: object) -> list[int]:
    assert isinstance(spans, list)
    return [int(each.detail) for each in spans]


@pytest.mark.parametrize(("chapter", "limit"), [(Chapter.START, MAX_START), (Chapter.END, MAX_END)])
def test_start_and_end_keep_their_first_spans(chapter: Chapter, limit: int) -> None:
    trace = PodTrace("u", "default", "web", 0.0, chapter)
    for number in range(limit):
        trace.keep(span(number))
    assert trace.dropped == 0
    trace.keep(span(limit))
    trace.keep(span(limit))
    assert trace.dropped == 2
    kept, other = (trace.start, trace.end)[:: 1 if chapter is Chapter.START else -1]
    assert (numbers(kept), other) == (list(range(limit)), [])
    assert not trace.later


def test_between_them_the_last_spans_are_kept() -> None:
    trace = PodTrace("u", "default", "web", 0.0, Chapter.LIFE)
    for number in range(MAX_LATER + 2):
        trace.keep(span(number))
    assert numbers(list(trace.later)) == list(range(2, MAX_LATER + 2))
    assert (trace.start, trace.end, trace.dropped) == ([], [], 0)


def test_a_pod_starts_once_and_its_end_is_no_start() -> None:
    trace = PodTrace("u", "default", "web", 0.0)
    trace.ready(5.0)
    trace.ready(6.0)
    assert (trace.chapter, trace.ready_at) == (Chapter.LIFE, 5.0)
    trace.ending()
    assert trace.chapter is Chapter.END
    never = PodTrace("u", "default", "web", 0.0)
    never.ending()
    never.ready(7.0)
    assert (never.chapter, never.ready_at) == (Chapter.END, None)

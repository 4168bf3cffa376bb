"""The spans that the trace of a pod keeps from each part of its life."""

from __future__ import annotations

import pytest

from kubeletpy.metrics.trace.model import (
    MAX_END,
    MAX_LATER,
    MAX_START,
    Chapter,
    PodTrace,
    Span,
    TraceCall,
)


def span(number: int) -> Span:
    return Span(TraceCall.PULL_IMAGE, str(number), float(number), number + 1.0)


def numbers(spans: object) -> list[int]:
    assert isinstance(spans, list)
    return [int(each.detail) for each in spans]


def test_an_end_keeps_its_first_spans() -> None:
    trace = PodTrace("u", "default", "web", 0.0, Chapter.END)
    for number in range(MAX_END + 2):
        assert trace.dropped == 0 or number > MAX_END
        trace.add_span(span(number))
    assert (trace.dropped, trace.start, list(trace.later)) == (2, [], [])
    assert numbers(trace.end) == list(range(MAX_END))


def test_a_start_keeps_its_first_and_its_latest_spans() -> None:
    trace = PodTrace("u", "default", "web", 0.0)
    for number in range(MAX_START):
        trace.add_span(span(number))
    assert trace.dropped == 0
    for number in range(MAX_START, 3 * MAX_START):
        trace.add_span(span(number))
    assert (trace.dropped, trace.end, list(trace.later)) == (2 * MAX_START, [], [])
    half = MAX_START // 2
    assert numbers(trace.start) == [*range(half), *range(3 * MAX_START - half, 3 * MAX_START)]


@pytest.mark.parametrize("chapter", list(Chapter))
def test_the_latest(chapter: Chapter) -> None:
    trace = PodTrace("u", "default", "web", 0.0, chapter)
    assert trace.latest(2) == []
    for number in range(3):
        trace.add_span(span(number))
    assert numbers(trace.latest(2)) == [1, 2]


def test_between_them_the_last_spans_are_kept() -> None:
    trace = PodTrace("u", "default", "web", 0.0, Chapter.LIFE)
    for number in range(MAX_LATER + 2):
        trace.add_span(span(number))
    assert numbers(list(trace.later)) == list(range(2, MAX_LATER + 2))
    assert (trace.start, trace.end, trace.dropped) == ([], [], 0)


def test_a_pod_starts_once_and_its_end_is_no_start() -> None:
    trace = PodTrace("u", "default", "web", 0.0)
    trace.ready(5.0)
    trace.ready(6.0)
    assert (trace.chapter, trace.ready_at) == (Chapter.LIFE, 5.0)
    trace.ending()
    assert trace.chapter is Chapter.END
    assert not trace.ended_first
    ended = PodTrace("u", "default", "web", 0.0)
    ended.ready(5.0, ended=True)
    ended.ready(6.0)
    assert (ended.chapter, ended.ready_at, ended.ended_first) == (Chapter.LIFE, 5.0, True)
    never = PodTrace("u", "default", "web", 0.0)
    never.ending()
    never.ready(7.0)
    assert (never.chapter, never.ready_at) == (Chapter.END, None)

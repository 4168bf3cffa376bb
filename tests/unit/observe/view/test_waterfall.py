"""The layout of bars: position, width, and the bars at the same time."""

from __future__ import annotations

import pytest

from kubeletpy.metrics.trace.model import Chapter, Name, PodTrace, Span, Step, TraceCall
from kubeletpy.observe.explain.model import timeline
from kubeletpy.observe.view.drawing import MAX_BESIDE, BarKind, Waterfall, waterfalls


def laid_out(*spans: Span, ready: float | None = None, now: float = 20.0) -> Waterfall:
    trace = PodTrace("uid", "default", "web", 10.0, ready_at=ready)
    sandbox = Span(TraceCall.RUN_POD_SANDBOX, "", 10.0, 10.0)
    trace.start = [sandbox, *(span for span in spans if span.ended is not None)]
    trace.open = {index: span for index, span in enumerate(spans) if span.ended is None}
    (found,) = waterfalls(timeline(trace, 0.0, None, now))
    return found


def test_rows_are_fractions_of_the_total_time() -> None:
    found = laid_out(Span(TraceCall.PULL_IMAGE, "a", 11.0, 12.0), ready=14.0)
    assert found.marks == ("0.0 ms", "1000 ms", "2000 ms", "3000 ms", "4000 ms")
    row = found.rows[1]
    assert (row.left, row.width, row.took, row.label) == (0.25, 0.25, "1000 ms", "pull image a")
    assert (found.title, found.began) == ("start", 10.0)
    assert found.summary.startswith("4000 ms from first sight")


def test_an_unfinished_span_reaches_the_right_edge() -> None:
    row = laid_out(Span(TraceCall.PULL_IMAGE, "a", 15.0)).rows[1]
    assert (row.left, row.width, row.took) == (0.5, 0.5, "5000 ms…")


@pytest.mark.parametrize(
    ("name", "error", "kind"),
    [
        (TraceCall.RUN_POD_SANDBOX, "", BarKind.SANDBOX),
        (TraceCall.STOP_POD_SANDBOX, "", BarKind.SANDBOX),
        (TraceCall.CREATE_CONTAINER, "", BarKind.CREATE),
        (TraceCall.START_CONTAINER, "", BarKind.START),
        (TraceCall.PULL_IMAGE, "", BarKind.PULL),
        (TraceCall.WRITE_STATUS, "", BarKind.WRITE),
        (TraceCall.STOP_CONTAINER, "", BarKind.STOP),
        (TraceCall.PRE_STOP, "", BarKind.HOOK),
        (TraceCall.POST_START, "", BarKind.HOOK),
        (Step.VOLUMES, "", BarKind.OTHER),
        (TraceCall.PULL_IMAGE, "no such host", BarKind.FAILED),
    ],
)
def test_kinds(name: Name, error: str, kind: BarKind) -> None:
    assert laid_out(Span(name, "", 10.5, 11.0, error)).rows[-1].kind is kind


def test_spans_that_run_at_the_same_time() -> None:
    """The longest overlap comes first; spans that contain a row or are part of it are left out."""
    found = laid_out(
        Span(Step.VOLUMES, "", 11.0, 15.0),
        Span(TraceCall.CHECK_UP_IMAGE, "inner", 12.0, 13.0),
        Span(TraceCall.PULL_IMAGE, "a", 12.5, 18.0),
        Span(TraceCall.PULL_IMAGE, "b", 14.0, 17.0),
        Span(TraceCall.PULL_IMAGE, "touches b", 17.0, 17.5),
        Span(TraceCall.PULL_IMAGE, "hardly", 17.4996, 18.0),
    )
    assert {row.label: row.beside for row in found.rows} == {
        "RunPodSandbox": (),
        "volumes": ("pull image a", "pull image b"),
        "look up image inner": ("pull image a",),
        "pull image a": (
            *("pull image b", "volumes", "pull image hardly"),
            *("look up image inner", "pull image touches b"),
        ),
        "pull image b": ("pull image a", "volumes"),
        "pull image touches b": ("pull image a",),
        "pull image hardly": ("pull image a",),
    }


def test_how_many_are_named_is_bounded() -> None:
    pulls = [Span(TraceCall.PULL_IMAGE, str(number), 11.0, 12.0) for number in range(9)]
    assert [len(row.beside) for row in laid_out(*pulls).rows] == [0, *([MAX_BESIDE] * 9)]


def test_the_end_is_a_waterfall_of_its_own() -> None:
    trace = PodTrace("uid", "default", "web", 10.0, Chapter.END, ready_at=12.0)
    trace.end = [Span(TraceCall.STOP_CONTAINER, "main", 15.0, 16.0)]
    found = waterfalls(timeline(trace, 0.0, None, 17.0))
    assert [(each.title, each.began, len(each.rows)) for each in found] == [
        ("start", 10.0, 0),
        ("end", 15.0, 1),
    ]


def test_text_is_bounded_and_on_one_line() -> None:
    row = laid_out(
        Span(TraceCall.PULL_IMAGE, "a\n\u202e" + "x" * 5000, 11.0, 12.0, "\x1b" + "e" * 5000)
    ).rows[1]
    assert row.label.startswith("pull image a xx")
    assert (len(row.label), len(row.error)) == (200, 600)

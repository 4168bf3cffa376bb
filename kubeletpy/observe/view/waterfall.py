"""Timelines laid out as rows of bars: for the page, for SVG and for reports. Pure.

All text is on one line, bounded and without control characters; whoever draws it still escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Name, TraceCall
from kubeletpy.observe.explain.render_timeline import scale, summary
from kubeletpy.observe.explain.texts import milliseconds, one_line
from kubeletpy.observe.explain.timeline import Bar, Timeline, TimelineChapter

MAX_LABEL = 200
MAX_ERROR = 600
MAX_BESIDE = 5
"""Rows that are named as running at the same time as another."""
QUARTERS = 4
NOTICEABLE_S = 0.0005
"""Seconds: rows that overlap by less count as one after the other."""


class BarKind(StrEnum):
    """The kinds of bars; each has a colour of its own."""

    SANDBOX = "sandbox"
    CREATE = "create"
    START = "start"
    PULL = "pull"
    WRITE = "write"
    STOP = "stop"
    HOOK = "hook"
    OTHER = "other"
    FAILED = "failed"


_KINDS: dict[Name, BarKind] = {
    TraceCall.RUN_POD_SANDBOX: BarKind.SANDBOX,
    TraceCall.STOP_POD_SANDBOX: BarKind.SANDBOX,
    TraceCall.CREATE_CONTAINER: BarKind.CREATE,
    TraceCall.START_CONTAINER: BarKind.START,
    TraceCall.PULL_IMAGE: BarKind.PULL,
    TraceCall.WRITE_STATUS: BarKind.WRITE,
    TraceCall.STOP_CONTAINER: BarKind.STOP,
    TraceCall.PRE_STOP: BarKind.HOOK,
    TraceCall.POST_START: BarKind.HOOK,
}


class Row(Struct, frozen=True):
    """One bar.

    Attributes:
        start, end: seconds since the chapter began.
        left, width: where it is drawn, as shares of the whole width.
        took: its length in words; ends with an ellipsis while it goes on.
        beside: labels of rows that ran at the same time, the longest overlap first; those that
            contain it, or are part of it, do not count.
    """

    label: str
    depth: int
    start: float
    end: float
    left: float
    width: float
    took: str
    kind: BarKind
    error: str
    beside: tuple[str, ...]


class Waterfall(Struct, frozen=True):
    """The start or the end of a pod.

    Attributes:
        began: Unix seconds.
        marks: the times at the left edge, at each quarter and at the right edge, in words.
    """

    title: str
    summary: str
    began: float
    marks: tuple[str, ...]
    rows: tuple[Row, ...]


def waterfalls(line: Timeline) -> tuple[Waterfall, ...]:
    """The start of a pod, what was done with it since, and its end, as far as there are any."""
    return tuple(_waterfall(chapter) for chapter in line.chapters)


def _waterfall(chapter: TimelineChapter) -> Waterfall:
    whole = scale(chapter)
    labels = [one_line(f"{bar.name} {bar.detail}", MAX_LABEL) for bar in chapter.spans]
    parents = _parents(chapter.spans)
    rows = tuple(
        Row(
            label=labels[index],
            depth=bar.depth,
            start=bar.start,
            end=bar.end,
            left=bar.start / whole,
            width=(bar.end - bar.start) / whole,
            took=milliseconds(bar.end - bar.start) + ("…" if bar.going_on else ""),
            kind=BarKind.FAILED if bar.error else _KINDS.get(bar.name, BarKind.OTHER),
            error=one_line(bar.error, MAX_ERROR),
            beside=tuple(labels[other] for other in _beside(index, chapter.spans, parents)),
        )
        for index, bar in enumerate(chapter.spans)
    )
    marks = tuple(milliseconds(whole * number / QUARTERS) for number in range(QUARTERS + 1))
    return Waterfall(chapter.title, one_line(summary(chapter)), chapter.began, marks, rows)


def _parents(bars: Sequence[Bar]) -> list[frozenset[int]]:
    """For each bar the indices of those that contain it: those above it with less depth."""
    found: list[frozenset[int]] = []
    above: list[int] = []
    for index, bar in enumerate(bars):
        while above and bars[above[-1]].depth >= bar.depth:
            above.pop()
        found.append(frozenset(above))
        above.append(index)
    return found


def _beside(index: int, bars: Sequence[Bar], parents: Sequence[frozenset[int]]) -> list[int]:
    """The bars that overlap with one of them, the longest overlap first."""
    bar, overlaps = bars[index], []
    for other, each in enumerate(bars):
        together = min(bar.end, each.end) - max(bar.start, each.start)
        related = other == index or other in parents[index] or index in parents[other]
        if together >= NOTICEABLE_S and not related:
            overlaps.append((-together, other))
    return [other for _, other in sorted(overlaps)[:MAX_BESIDE]]

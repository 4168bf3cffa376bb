"""Draws timelines for a terminal. Pure.

External text is put on one line. :mod:`kubeletpy.observe.view.drawing` draws them as SVG and HTML.
"""

from __future__ import annotations

from msgspec import to_builtins

from kubeletpy.metrics.trace.model import Chapter as Part
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.causes import cause
from kubeletpy.observe.explain.texts import milliseconds, one_line
from kubeletpy.observe.explain.timeline import Bar, Timeline, TimelineChapter

_FULL, _LEFT = "█", " ▏▎▍▌▋▊▉"


def text(line: Timeline, width: int = 100) -> str:
    """For a terminal of ``width`` columns."""
    head = one_line(f"{line.namespace}/{line.name}")
    parts = [_chapter(head, each, width) for each in line.chapters]
    if line.verdict and (line.waits or line.start.total is None):
        parts.append(f"now: {one_line(line.verdict, render.MAX_VERDICT)}")
    waits = render.waits([to_builtins(each) for each in line.waits], line.at)
    return "\n\n".join([*parts, *([waits] if waits else [])]) + "\n"


def summary(chapter: TimelineChapter) -> str:
    """How far it is, or how long it took from what to what."""
    if chapter.title == Part.LIFE:
        return f"what was done since it was Ready first, the last {len(chapter.spans)} steps"
    if chapter.title == Part.START:
        done, going = "from first sight to the Ready status being written", "not ready yet"
        if chapter.over:
            done = "from first sight to its end being written; it was never Ready"
            going = "it was never Ready"
    else:
        done, going = "from the first stop to the pod being done with", "still ending"
    total = going if chapter.total is None else f"{milliseconds(chapter.total)} {done}"
    return total + (f" ({chapter.note})" if chapter.note else "")


def _chapter(head: str, chapter: TimelineChapter, width: int) -> str:
    lines = [f"{head}  {chapter.title}: {summary(chapter)}"]
    whole = scale(chapter)
    labels = [_label(bar) for bar in chapter.spans]
    room = min(len(max(labels, key=len, default="")), max(width // 2 - 10, 20))
    bars = max(width - room - 26, 10)
    for bar in chapter.spans:
        took = f"{milliseconds(bar.end - bar.start)}{'…' if bar.going_on else ''}"
        lines.append(
            f"  {_cut(_label(bar), room):<{room}} {'+' + milliseconds(bar.start):>10} {took:>9}"
            f" │{_bar(bar.start, bar.end, whole, bars)}│"
        )
        if bar.error:
            lines.append(f"  {'  ' * bar.depth}  failed: {cause(bar.error)}")
    return "\n".join(lines)


def scale(chapter: TimelineChapter) -> float:
    """Seconds that the whole width stands for."""
    ends = [bar.end for bar in chapter.spans]
    return max([0.001, *ends, *filter(None, [chapter.total])])


def _label(bar: Bar) -> str:
    return "  " * bar.depth + one_line(f"{bar.name} {bar.detail}")


def _cut(label: str, room: int) -> str:
    return label if len(label) <= room else label[: room - 1] + "…"


def _bar(start: float, end: float, whole: float, width: int) -> str:
    """A bar with a resolution of an eighth of a column."""
    first, last = round(start / whole * width * 8), round(end / whole * width * 8)
    last = max(last, first + 1)
    column = min(first // 8, width - 1)
    eighths = last - column * 8
    full, rest = divmod(eighths, 8)
    bar = _FULL * full + _LEFT[rest]
    return (" " * column + bar)[:width].ljust(width)

"""Lays timelines out as rows of bars, and draws them as SVG and as a report of one HTML file. Pure.

The page draws the same rows. SVG and report are self-contained: no script, no link, nothing that is
fetched. All text is escaped, also that of pods, images and runtimes; the report's policy allows its
own style and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from enum import StrEnum
from hashlib import sha256
from html import escape

from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain.model import Bar, Timeline, TimelineChapter
from kubeletpy.observe.explain.render import scale, summary
from kubeletpy.observe.explain.texts import milliseconds, one_line

# Rows of bars. All text is on one line, bounded and without control characters, but not escaped.

MAX_LABEL = 200
MAX_ERROR = 600
MAX_BESIDE = 5
"""Maximum number of rows that are named as running at the same time as another."""
QUARTERS = 4
NOTICEABLE_S = 0.0005
"""Seconds: rows that overlap by less count as one after the other."""


class BarKind(StrEnum):
    """The kinds of bars; each has a color of its own."""

    SANDBOX = "sandbox"
    CREATE = "create"
    START = "start"
    PULL = "pull"
    WRITE = "write"
    STOP = "stop"
    HOOK = "hook"
    OTHER = "other"
    FAILED = "failed"


_KINDS: dict[str, BarKind] = {
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
    """One bar, with its label.

    Attributes:
        start, end: seconds since the chapter began.
        left, width: its position, as shares of the complete width.
        took: its length as text, which ends with an ellipsis while it goes on.
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
    """One chapter of a timeline: the start of a pod, its life or its end.

    Attributes:
        began: Unix seconds.
        marks: the times at the left edge, at each quarter and at the right edge, as text.
    """

    title: str
    summary: str
    began: float
    marks: tuple[str, ...]
    rows: tuple[Row, ...]


def waterfalls(line: Timeline) -> tuple[Waterfall, ...]:
    """Return the start of a pod, its life and its end, as far as they exist."""
    return tuple(_waterfall(chapter, line.at) for chapter in line.chapters)


def _waterfall(chapter: TimelineChapter, now: float) -> Waterfall:
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
    return Waterfall(chapter.title, one_line(summary(chapter, now)), chapter.began, marks, rows)


def _parents(bars: Sequence[Bar]) -> list[frozenset[int]]:
    """Return for each bar the indices of those that contain it: above it, with less depth."""
    found: list[frozenset[int]] = []
    above: list[int] = []
    for index, bar in enumerate(bars):
        while above and bars[above[-1]].depth >= bar.depth:
            above.pop()
        found.append(frozenset(above))
        above.append(index)
    return found


def _beside(index: int, bars: Sequence[Bar], parents: Sequence[frozenset[int]]) -> list[int]:
    """Return the bars that overlap with one of them, the longest overlap first."""
    bar, overlaps = bars[index], []
    for other, each in enumerate(bars):
        together = min(bar.end, each.end) - max(bar.start, each.start)
        related = other == index or other in parents[index] or index in parents[other]
        if together >= NOTICEABLE_S and not related:
            overlaps.append((-together, other))
    return [other for _, other in sorted(overlaps)[:MAX_BESIDE]]


LEGEND: dict[BarKind, tuple[str, str]] = {
    BarKind.SANDBOX: ("#4c78a8", "pod sandbox"),
    BarKind.CREATE: ("#72b7b2", "create container"),
    BarKind.START: ("#54a24b", "start container"),
    BarKind.PULL: ("#f58518", "pull image"),
    BarKind.WRITE: ("#b279a2", "write status"),
    BarKind.STOP: ("#e45756", "stop container"),
    BarKind.HOOK: ("#eeca3b", "hook"),
    BarKind.OTHER: ("#9d9da1", "other step"),
    BarKind.FAILED: ("#d62728", "failed"),
}
"""Kind of a bar -> its color and its meaning."""
_LINE = 18
"""Pixels: the height of a line of text."""


class Shape(Struct, frozen=True):
    """The layout of a drawing. Lengths are pixels.

    Attributes:
        left, wide, right: widths of the labels, of the bars and of the text behind the last bar.
        row: the height of a row.
        bar: how far below the top of its row a bar begins.
        label, title: characters that fit.
        legend: entries in a line.
    """

    left: int
    wide: int
    right: int
    row: int
    bar: int
    label: int
    title: int
    legend: int

    @property
    def width(self) -> int:
        """Returns the width of the drawing."""
        return self.left + self.wide + self.right


WIDE = Shape(330, 700, 110, row=18, bar=3, label=46, title=160, legend=9)
"""Labels beside the bars."""
NARROW = Shape(8, 268, 74, row=36, bar=18, label=46, title=48, legend=3)
"""Labels above the bars: fits the screen of a phone."""

_STYLE = """
:root { color-scheme: light; }
body { margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24;
  background: #fff; font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
svg { max-width: 100%; height: auto; }
.phone { display: none; }
@media (max-width: 720px) { .phone { display: block; } .desk { display: none; } }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem .25rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.d1 { padding-left: 1rem; } .d2 { padding-left: 2rem; } .d3 { padding-left: 3rem; }
.error { color: #b3261e; }
@media print { body { margin: 0; max-width: none; } }
"""


def svg(line: Timeline, shape: Shape = WIDE) -> str:
    """Return a self-contained SVG document."""
    found = waterfalls(line)
    head = one_line(f"{line.namespace}/{line.name}")
    used = {row.kind for each in found for row in each.rows}
    kinds = [kind for kind in BarKind if kind in used]
    legend = -(-len(kinds) // shape.legend) * _LINE
    height = sum(len(each.rows) * shape.row + 3 * _LINE for each in found) + _LINE + legend
    width = shape.width
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    top = _LINE
    for each in found:
        title = escape(one_line(f"{head} {each.title}: {each.summary}", shape.title))
        parts.append(f'<text x="8" y="{top + 4}" font-weight="bold">{title}</text>')
        top += _LINE
        parts += _bars(each, top, shape)
        top += len(each.rows) * shape.row + 2 * _LINE
    parts += _legend(kinds, top, shape)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(found: Waterfall, top: int, shape: Shape) -> list[str]:
    bottom = top + len(found.rows) * shape.row
    parts = []
    for number, mark in enumerate(found.marks):
        x = shape.left + shape.wide * number / QUARTERS
        anchor = "start" if x < _LINE else "middle"
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 13}" fill="#777" text-anchor="{anchor}">{mark}</text>'
        )
    for index, row in enumerate(found.rows):
        y = top + index * shape.row
        x, length = shape.left + row.left * shape.wide, max(row.width * shape.wide, 1)
        label = escape(one_line(row.label, shape.label))
        parts.append(f'<text x="{8 + 14 * row.depth}" y="{y + 13}">{label}</text>')
        parts.append(
            f'<rect x="{x:.1f}" y="{y + shape.bar}" width="{length:.1f}" height="12" '
            f'fill="{LEGEND[row.kind][0]}"><title>{escape(hint(row))}</title></rect>'
        )
        took = y + shape.bar + 10
        parts.append(f'<text x="{x + length + 4:.1f}" y="{took}">{row.took}</text>')
    return parts


def _legend(kinds: Sequence[BarKind], top: int, shape: Shape) -> list[str]:
    wide = shape.width // shape.legend
    parts = []
    for index, kind in enumerate(kinds):
        x, y = 8 + index % shape.legend * wide, top + index // shape.legend * _LINE
        color, meaning = LEGEND[kind]
        parts.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>')
        parts.append(f'<text x="{x + 14}" y="{y + 9}">{meaning}</text>')
    return parts


def hint(row: Row) -> str:
    """Return everything about a row, on one line."""
    text = f"{row.label}: {row.took}" + (f" {row.error}" if row.error else "")
    return text + (f"; at the same time: {', '.join(row.beside)}" if row.beside else "")


def html(line: Timeline) -> str:
    """Return a self-contained HTML document: the drawing, wide and narrow, and a table of it."""
    head = escape(one_line(f"{line.namespace}/{line.name}"))
    policy = f"default-src 'none'; style-src '{source_hash(_STYLE)}'"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{head}: timeline</title><style>{_STYLE}</style></head><body>",
        f"<h1>{head}</h1><p>uid {escape(one_line(line.uid))}</p>",
        f'<div class="wide desk">{svg(line)}</div>',
        f'<div class="wide phone">{svg(line, NARROW)}</div>',
    ]
    for each in waterfalls(line):
        parts += _table(each)
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _table(found: Waterfall) -> list[str]:
    title = f"{found.title.capitalize()}: {found.summary}"
    parts = [
        f"<h2>{escape(title)}</h2>",
        f"<p>It began at {escape(format_time(found.began))}.</p>",
        '<div class="wide"><table><thead><tr><th class="n">after</th><th class="n">took</th>'
        "<th>step</th><th>at the same time</th></tr></thead><tbody>",
    ]
    for row in found.rows:
        error = f'<div class="error">{escape(row.error)}</div>' if row.error else ""
        parts.append(
            f'<tr><td class="n">{milliseconds(row.start)}</td><td class="n">{row.took}</td>'
            f'<td><div class="d{min(row.depth, 3)}">{escape(row.label)}</div>{error}</td>'
            f"<td>{escape(', '.join(row.beside))}</td></tr>"
        )
    return [*parts, "</tbody></table></div>"]


def source_hash(text: str) -> str:
    """Return the source expression that allows an inline script or style of exactly this text."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"

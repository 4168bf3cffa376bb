"""Draws timelines: for a terminal, and as SVG. Pure.

What comes from outside is put on one line for the terminal and escaped for SVG.
"""

from __future__ import annotations

from html import escape

from kubeletpy.explain.timeline import Bar, Chapter, Timeline
from kubeletpy.explain.words import milliseconds, one_line
from kubeletpy.trace.model import Chapter as Part
from kubeletpy.trace.names import Call, Name

_FULL, _LEFT = "█", " ▏▎▍▌▋▊▉"
_COLOURS: dict[Name, str] = {
    Call.RUN_POD_SANDBOX: "#4c78a8",
    Call.CREATE_CONTAINER: "#72b7b2",
    Call.START_CONTAINER: "#54a24b",
    Call.PULL_IMAGE: "#f58518",
    Call.WRITE_STATUS: "#b279a2",
    Call.STOP_CONTAINER: "#e45756",
    Call.STOP_POD_SANDBOX: "#4c78a8",
    Call.PRE_STOP: "#eeca3b",
    Call.POST_START: "#eeca3b",
}
_OTHER, _FAILED = "#9d9da1", "#d62728"


def text(line: Timeline, width: int = 100) -> str:
    """For a terminal of ``width`` columns."""
    head = one_line(f"{line.namespace}/{line.name}")
    parts = [_chapter(head, line.start, width)]
    if line.end is not None:
        parts.append(_chapter(head, line.end, width))
    return "\n\n".join(parts) + "\n"


def _summary(chapter: Chapter) -> str:
    if chapter.title == Part.START:
        done, going = "from first sight to the Ready status being written", "not ready yet"
    else:
        done, going = "from the first stop to the pod being done with", "still ending"
    total = going if chapter.total is None else f"{milliseconds(chapter.total)} {done}"
    return total + (f" ({chapter.note})" if chapter.note else "")


def _chapter(head: str, chapter: Chapter, width: int) -> str:
    lines = [f"{head}  {chapter.title}: {_summary(chapter)}"]
    scale = _scale(chapter)
    labels = [_label(bar) for bar in chapter.spans]
    room = min(len(max(labels, key=len, default="")), max(width // 2 - 10, 20))
    bars = max(width - room - 26, 10)
    for bar in chapter.spans:
        took = f"{milliseconds(bar.end - bar.start)}{'…' if bar.going_on else ''}"
        lines.append(
            f"  {_cut(_label(bar), room):<{room}} {'+' + milliseconds(bar.start):>10} {took:>9}"
            f" │{_bar(bar.start, bar.end, scale, bars)}│"
        )
        if bar.error:
            lines.append(f"  {'':{room}} {'':>20} {one_line(bar.error, bars)}")
    return "\n".join(lines)


def _scale(chapter: Chapter) -> float:
    ends = [bar.end for bar in chapter.spans]
    return max([0.001, *ends, *filter(None, [chapter.total])])


def _label(bar: Bar) -> str:
    return "  " * bar.depth + one_line(f"{bar.name} {bar.detail}")


def _cut(label: str, room: int) -> str:
    return label if len(label) <= room else label[: room - 1] + "…"


def _bar(start: float, end: float, scale: float, width: int) -> str:
    """A bar with eighths of a column."""
    first, last = round(start / scale * width * 8), round(end / scale * width * 8)
    last = max(last, first + 1)
    column = min(first // 8, width - 1)
    eighths = last - column * 8
    full, rest = divmod(eighths, 8)
    bar = _FULL * full + _LEFT[rest]
    return (" " * column + bar)[:width].ljust(width)


def svg(line: Timeline) -> str:
    """A self-contained SVG document."""
    row, left, wide = 18, 330, 700
    chapters = [line.start] + ([line.end] if line.end is not None else [])
    height = sum((len(chapter.spans) + 3) * row for chapter in chapters) + row
    width = left + wide + 110
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    top = row
    for chapter in chapters:
        title = one_line(f"{line.namespace}/{line.name}  {chapter.title}: {_summary(chapter)}")
        parts.append(f'<text x="8" y="{top + 4}" font-weight="bold">{escape(title)}</text>')
        top += row
        parts += _svg_chapter(chapter, top, row, left, wide)
        top += (len(chapter.spans) + 2) * row
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg_chapter(chapter: Chapter, top: int, row: int, left: int, wide: int) -> list[str]:
    scale = _scale(chapter)
    bottom = top + len(chapter.spans) * row
    parts = []
    for number in range(5):
        x = left + wide * number / 4
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        mark = milliseconds(scale * number / 4)
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 13}" fill="#777" text-anchor="middle">{mark}</text>'
        )
    for index, bar in enumerate(chapter.spans):
        y = top + index * row
        x = left + bar.start / scale * wide
        length = (bar.end - bar.start) / scale * wide
        colour = _FAILED if bar.error else _COLOURS.get(bar.name, _OTHER)
        name = one_line(f"{bar.name} {bar.detail}")
        label = escape(_cut(name, 46))
        took = milliseconds(bar.end - bar.start) + ("…" if bar.going_on else "")
        hint = escape(one_line(f"{name}: {took} {bar.error}"))
        parts.append(f'<text x="{8 + 14 * bar.depth}" y="{y + 13}">{label}</text>')
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 3}" width="{max(length, 1):.1f}" height="{row - 6}" '
            f'fill="{colour}"><title>{hint}</title></rect>'
        )
        parts.append(f'<text x="{x + max(length, 1) + 4:.1f}" y="{y + 13}">{took}</text>')
    return parts

"""Draws timelines as SVG, and as a report of one HTML file. Pure.

Both are self-contained: no script, no link, nothing that is fetched. All text is escaped, also what
a pod, an image or a runtime says; the report's policy allows its own style and nothing else.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from kubeletpy.api.times import format_time
from kubeletpy.explain.timeline import Timeline
from kubeletpy.explain.words import milliseconds, one_line
from kubeletpy.view.waterfall import QUARTERS, Kind, Row, Waterfall, waterfalls

COLOURS: dict[Kind, str] = {
    Kind.SANDBOX: "#4c78a8",
    Kind.CREATE: "#72b7b2",
    Kind.START: "#54a24b",
    Kind.PULL: "#f58518",
    Kind.WRITE: "#b279a2",
    Kind.STOP: "#e45756",
    Kind.HOOK: "#eeca3b",
    Kind.OTHER: "#9d9da1",
    Kind.FAILED: "#d62728",
}
_ROW, _LEFT, _WIDE, _RIGHT = 18, 330, 700, 110
"""Pixels: the height of a row, the widths of labels, bars and what stands behind the last bar."""
_LABEL = 46
"""Characters of a label that fit."""

_STYLE = """
:root { color-scheme: light; }
body { margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1f24;
  background: #fff; font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem .25rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.d1 { padding-left: 1rem; } .d2 { padding-left: 2rem; } .d3 { padding-left: 3rem; }
.error { color: #b3261e; }
@media print { body { margin: 0; max-width: none; } }
"""


def svg(line: Timeline) -> str:
    """A self-contained SVG document."""
    found = waterfalls(line)
    head = one_line(f"{line.namespace}/{line.name}")
    height = sum((len(each.rows) + 3) * _ROW for each in found) + _ROW
    width = _LEFT + _WIDE + _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    top = _ROW
    for each in found:
        title = escape(f"{head} {each.title}: {each.summary}")
        parts.append(f'<text x="8" y="{top + 4}" font-weight="bold">{title}</text>')
        top += _ROW
        parts += _bars(each, top)
        top += (len(each.rows) + 2) * _ROW
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(found: Waterfall, top: int) -> list[str]:
    bottom = top + len(found.rows) * _ROW
    parts = []
    for number, mark in enumerate(found.marks):
        x = _LEFT + _WIDE * number / QUARTERS
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 13}" fill="#777" text-anchor="middle">{mark}</text>'
        )
    for index, row in enumerate(found.rows):
        y = top + index * _ROW
        x, length = _LEFT + row.left * _WIDE, max(row.width * _WIDE, 1)
        label = escape(one_line(row.label, _LABEL))
        parts.append(f'<text x="{8 + 14 * row.depth}" y="{y + 13}">{label}</text>')
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 3}" width="{length:.1f}" height="{_ROW - 6}" '
            f'fill="{COLOURS[row.kind]}"><title>{escape(hint(row))}</title></rect>'
        )
        parts.append(f'<text x="{x + length + 4:.1f}" y="{y + 13}">{row.took}</text>')
    return parts


def hint(row: Row) -> str:
    """Everything about a row, on one line."""
    said = f"{row.label}: {row.took}" + (f" {row.error}" if row.error else "")
    return said + (f"; at the same time: {', '.join(row.beside)}" if row.beside else "")


def html(line: Timeline) -> str:
    """A self-contained HTML document: the drawing, and the same as a table."""
    head = escape(one_line(f"{line.namespace}/{line.name}"))
    policy = f"default-src 'none'; style-src '{source_hash(_STYLE)}'"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{head}: timeline</title><style>{_STYLE}</style></head><body>",
        f"<h1>{head}</h1><p>uid {escape(one_line(line.uid))}</p>",
        f'<div class="wide">{svg(line)}</div>',
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
    """The source expression that allows an inline script or style of exactly this text."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"

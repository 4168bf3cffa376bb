"""Lines over time as SVG, one panel below the other, for pages of the documentation. Pure.

Readable on a light and on a dark background; no script, no font, no outside request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#b279a2", "#72b7b2")
WIDTH, HEIGHT = 760, 130
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 24, 20
_INK = "#888888"


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: its name, and points (x, y) in the order of x; None breaks it."""

    name: str
    points: Sequence[tuple[float, float | None]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves that share a scale from 0 on; ``title`` names what and its unit."""

    title: str
    lines: Sequence[Line]


def svg(panels: Sequence[Panel], x_title: str) -> str:
    """A picture of panels that share their x axis; ``x_title`` names it and its unit."""
    every = [x for panel in panels for line in panel.lines for x, _ in line.points]
    last = max(every, default=1.0) or 1.0
    height = len(panels) * HEIGHT + 20
    drawn = [_panel(panel, number * HEIGHT, last) for number, panel in enumerate(panels)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11" fill="{_INK}">\n'
        + "".join(drawn)
        + _text(_LEFT + (WIDTH - _LEFT - _RIGHT) / 2, height - 6, x_title, "middle")
        + "</svg>\n"
    )


def ticks(most: float, about: int = 4) -> list[float]:
    """Round numbers from 0 on, the last one not below ``most``; ``about`` so many steps."""
    if most <= 0:
        return [0.0, 1.0]
    power = 10 ** math.floor(math.log10(most / about))
    step = next(each * power for each in (1, 2, 5, 10) if each * power * about >= most)
    return [number * step for number in range(math.ceil(most / step - 1e-9) + 1)]


def _panel(panel: Panel, top: float, last: float) -> str:
    values = [y for line in panel.lines for _, y in line.points if y is not None]
    marks = ticks(max(values, default=0.0))
    low, high = top + HEIGHT - _BOTTOM, top + _TOP
    right = WIDTH - _RIGHT

    def across(x: float) -> float:
        return _LEFT + x / last * (right - _LEFT)

    def up(y: float) -> float:
        return low - y / marks[-1] * (low - high)

    parts = [_text(_LEFT, top + 14, panel.title, "start", bold=True)]
    for mark in marks:
        parts.append(_rule(_LEFT, up(mark), right, up(mark)))
        parts.append(_text(_LEFT - 6, up(mark) + 4, f"{mark:g}", "end"))
    for mark in ticks(last, 8):
        if mark <= last:
            parts.append(_text(across(mark), low + 14, f"{mark:g}", "middle"))
    for number, line in enumerate(panel.lines):
        colour = COLOURS[number % len(COLOURS)]
        parts += [
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="'
            + " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in piece)
            + '"/>\n'
            for piece in _pieces(line.points)
        ]
        if len(panel.lines) > 1:
            parts.append(_text(right, top + 14 + 13 * number, line.name, "end", colour=colour))
    return "".join(parts)


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Without the gaps."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in points:
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x, y))
    return [piece for piece in pieces if piece]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    line = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {line} stroke="{_INK}" stroke-opacity="0.25"/>\n'


def _text(
    x: float, y: float, text: str, anchor: str, *, bold: bool = False, colour: str = _INK
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"'
    return f"<text {place}{weight}>{escape(text)}</text>\n"

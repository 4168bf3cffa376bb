"""Pictures of curves: round scales, gaps stay gaps, names are escaped."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from bench.plots import Line, Panel, svg, ticks


@pytest.mark.parametrize(
    ("most", "about", "desired"),
    [
        (0, 4, [0, 1]),
        (4, 4, [0, 1, 2, 3, 4]),
        (4.1, 4, [0, 2, 4, 6]),
        (17, 4, [0, 5, 10, 15, 20]),
        (0.03, 4, [0, 0.01, 0.02, 0.03]),
        (120, 8, [0, 20, 40, 60, 80, 100, 120]),
    ],
)
def test_ticks_are_round_and_cover(most: float, about: int, desired: list[float]) -> None:
    assert ticks(most, about) == pytest.approx(desired)


def test_a_gap_breaks_the_line() -> None:
    drawn = svg([Panel("p", [Line("l", [(0, 1), (1, 2), (2, None), (3, 0)])])], "x")
    lines = re.findall(r'points="([^"]*)"', drawn)
    assert [len(each.split()) for each in lines] == [2, 1]
    left, right = lines[0].split()[0], lines[1].split()[0]
    assert left == "64.0,67.0", "half of the scale's 2"
    assert right == "748.0,110.0", "the last x is at the right end, 0 at the bottom"


def test_names_are_text() -> None:
    panel = Panel("<script>", [Line("a & b", [(0, 1)]), Line("c", [(0, 1)])])
    texts = [each.text for each in ElementTree.fromstring(svg([panel], "minutes")).iter()]
    assert {"<script>", "a & b", "c", "minutes"} <= set(texts)

"""Timelines as SVG and as a report: each span where it began, and every text harmless."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from kubeletpy.metrics.trace.model import PodTrace, Span, TraceCall
from kubeletpy.observe.explain.model import timeline
from kubeletpy.observe.view.drawing import (
    LEGEND,
    NARROW,
    WIDE,
    BarKind,
    Shape,
    html,
    source_hash,
    svg,
)
from tests.unit.observe.explain.test_whole_timeline import whole

DRAWN = """\
svg 1140 378 0 0 1140 378 sans-serif 12
rect 1140 378 white
text 8 22 bold | default/web start: 2500 ms from first sight to the Ready status being written \
(2 more spans were not kept)
line 330.0 36 330.0 180 #ddd
text 330.0 193 #777 middle | 0.0 ms
line 505.0 36 505.0 180 #ddd
text 505.0 193 #777 middle | 625 ms
line 680.0 36 680.0 180 #ddd
text 680.0 193 #777 middle | 1250 ms
line 855.0 36 855.0 180 #ddd
text 855.0 193 #777 middle | 1875 ms
line 1030.0 36 1030.0 180 #ddd
text 1030.0 193 #777 middle | 2500 ms
text 8 49 | wait for its worker
rect 330.0 39 140.0 12 #9d9da1
title | wait for its worker: 500 ms
text 474.0 49 | 500 ms
text 8 67 | volumes
rect 470.0 57 5.6 12 #9d9da1
title | volumes: 20 ms
text 479.6 67 | 20 ms
text 8 85 | wait for a place to start in
rect 475.6 75 84.0 12 #9d9da1
title | wait for a place to start in: 300 ms
text 563.6 85 | 300 ms
text 22 103 | look up image in the place
rect 503.6 93 56.0 12 #9d9da1
title | look up image in the place: 200 ms
text 563.6 103 | 200 ms
text 8 121 | RunPodSandbox attempt 0
rect 559.6 111 196.0 12 #4c78a8
title | RunPodSandbox attempt 0: 700 ms; at the same time: \
pull image registry.example/team/a-long-image-name:1.2.3
text 759.6 121 | 700 ms
text 8 139 | pull image registry.example/team/a-long-image…
rect 582.0 129 280.0 12 #d62728
title | pull image registry.example/team/a-long-image-name:1.2.3: 1000 ms 401 <no>; \
at the same time: RunPodSandbox attempt 0, init container runs schema
text 866.0 139 | 1000 ms
text 8 157 | init container runs schema
rect 778.0 147 56.0 12 #9d9da1
title | init container runs schema: 200 ms; at the same time: \
pull image registry.example/team/a-long-image-name:1.2.3
text 838.0 157 | 200 ms
text 8 175 | write status Running
rect 1002.0 165 1.0 12 #b279a2
title | write status Running: 0.0 ms
text 1007.0 175 | 0.0 ms
text 8 220 bold | default/web end: 2000 ms from the first stop to the pod being done with
line 330.0 234 330.0 324 #ddd
text 330.0 337 #777 middle | 0.0 ms
line 505.0 234 505.0 324 #ddd
text 505.0 337 #777 middle | 500 ms
line 680.0 234 680.0 324 #ddd
text 680.0 337 #777 middle | 1000 ms
line 855.0 234 855.0 324 #ddd
text 855.0 337 #777 middle | 1500 ms
line 1030.0 234 1030.0 324 #ddd
text 1030.0 337 #777 middle | 2000 ms
text 8 247 | kill
rect 330.0 237 612.5 12 #9d9da1
title | kill: 1750 ms
text 946.5 247 | 1750 ms
text 22 265 | preStop hook main
rect 330.0 255 87.5 12 #eeca3b
title | preStop hook main: 250 ms
text 421.5 265 | 250 ms
text 22 283 | StopContainer main
rect 417.5 273 437.5 12 #e45756
title | StopContainer main: 1250 ms
text 859.0 283 | 1250 ms
text 22 301 | StopPodSandbox
rect 855.0 291 87.5 12 #4c78a8
title | StopPodSandbox: 250 ms
text 946.5 301 | 250 ms
text 8 319 | remove cgroup
rect 942.5 309 87.5 12 #9d9da1
title | remove cgroup: 250 ms…
text 1034.0 319 | 250 ms…
rect 8 360 10 10 #4c78a8
text 22 369 | pod sandbox
rect 134 360 10 10 #b279a2
text 148 369 | write status
rect 260 360 10 10 #e45756
text 274 369 | stop container
rect 386 360 10 10 #eeca3b
text 400 369 | hook
rect 512 360 10 10 #9d9da1
text 526 369 | other step
rect 638 360 10 10 #d62728
text 652 369 | failed
"""
"""Each line is an element: attributes in order, then text. 700 pixels are 2500 ms, then 2000 ms."""


def test_svg() -> None:
    found = []
    for element in ElementTree.fromstring(svg(whole())).iter():
        text = (element.text or "").strip()
        tag = element.tag.rpartition("}")[2]
        found.append(" ".join([tag, *element.attrib.values(), *([f"| {text}"] if text else [])]))
    assert "\n".join(found) + "\n" == DRAWN


@pytest.mark.parametrize("shape", [WIDE, NARROW])
def test_nothing_is_drawn_outside(shape: Shape) -> None:
    """A sans-serif character of 12 px is about 6.5 px wide; the longest labels decide."""
    drawing = ElementTree.fromstring(svg(whole(), shape))
    width, height = int(drawing.attrib["width"]), int(drawing.attrib["height"])
    rows: dict[tuple[float, float], str | None] = {}
    for element in drawing.iter():
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        tag = element.tag.rpartition("}")[2]
        if tag == "rect":
            assert x + float(element.attrib["width"]) <= width
            assert y + float(element.attrib["height"]) <= height
        elif tag == "text":
            wide = 6.5 * len(element.text or "")
            left = x - wide / 2 if element.get("text-anchor") == "middle" else x
            assert left >= 0
            assert left + wide <= width
            assert y <= height
            assert rows.setdefault((x, y), element.text) == element.text, "one over another"


def test_the_legend_names_each_color() -> None:
    assert LEGEND.keys() == set(BarKind)
    colors, meanings = map(set, zip(*LEGEND.values(), strict=True))
    assert len(colors) == len(meanings) == len(BarKind)


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg><svg onload=alert(1)>",
    "]]><!--&amp;&lt;",
    "a\x00b\x1b[31mc\x07\x85\ufffe\ud800",
    "\u202eevil\u2066\u2069\u200f",
    "line\r\nline\u2028line\u2029",
    "x" * 4096,
)
"""Texts that may occur in names, images and errors."""
_MUST_NOT = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def trace_full_of(text: str) -> PodTrace:
    trace = PodTrace(text, text, text, 10.0)
    trace.start = [
        Span(TraceCall.RUN_POD_SANDBOX, text, 10.0, 11.0, text),
        Span(TraceCall.PULL_IMAGE, text, 10.0, 11.0, text),
    ]
    return trace


class Elements(HTMLParser):
    """The elements of a document with their attributes, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_a_pod_says_is_text(text: str) -> None:
    line = timeline(trace_full_of(text), 0.0, None, 13.0)
    drawing, report = svg(line), html(line)
    tags = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(drawing).iter()}
    assert tags == {"svg", "rect", "text", "line", "title"}
    read = Elements()
    read.feed(report)
    assert read.tags == tags | {
        *("html", "head", "meta", "style", "body", "h1", "h2", "p", "div"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert not [
        name for name in read.attributes if name.startswith("on") or name in ("src", "href")
    ]
    for document in (drawing, report):
        document.encode()
        assert not _MUST_NOT.search(document)
        assert len(document) < 30_000


def test_a_report_has_the_drawing_and_a_table_and_may_fetch_nothing() -> None:
    report = html(whole())
    assert svg(whole(), WIDE) in report
    assert svg(whole(), NARROW) in report
    (style,) = re.findall(r"<style>(.*?)</style>", report, re.DOTALL)
    assert f"content=\"default-src 'none'; style-src '{source_hash(style)}'\"" in report
    assert report.index("Content-Security-Policy") < report.index("<style>")
    text = " ".join(re.sub(r"<[^>]+>", " ", report[report.index("</svg>") :]).split())
    assert "Start: 2500 ms from first sight to the Ready status being written" in text
    assert "It began at 1970-01-01T00:16:49Z." in text
    assert "520 ms 300 ms wait for a place to start in 620 ms 200 ms look up image" in text
    assert "401 &lt;no&gt; RunPodSandbox attempt 0, init container runs schema" in text

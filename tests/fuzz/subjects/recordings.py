"""Recordings that others send, with any type anywhere."""

from __future__ import annotations

import copy
import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from kubeletpy.observe.recorder import replay as render
from kubeletpy.observe.recorder.replay import replay
from tests.fuzz.target import JSON_WORDS, target

RECORDED = Path(__file__).parents[2] / "recorded" / "many-kinds.jsonl.gz"
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 70, 1e400, "", "x", [], {}, [[7]], {"#": 0}, {"#": "x"}),
)
MOST_LINES = 12


@lru_cache(maxsize=1)
def _lines() -> tuple[bytes, ...]:
    return tuple(gzip.decompress(RECORDED.read_bytes()).splitlines()[:MOST_LINES])


@target(
    seeds=(b"\x01\x02\x03\x04", b'{"k":"shared","n":{}}', b"\x02\x05\x00\x07\x03\x01\x09\x02"),
    parts=(*JSON_WORDS, b'{"k":"event",', b'"t":1,"uid":"u",', b'"in":', b'"out":'),
)
def recording(data: bytes) -> None:
    """A line as it is, then a good recording of which some values have another type."""
    lines = [json.loads(line) for line in _lines()]
    for start in range(0, min(len(data), 64) - 3, 4):
        number, *way, odd = data[start : start + 4]
        # a copy: a later change may put a value into this one
        _change(lines[number % len(lines)], way, copy.deepcopy(ODD[odd % len(ODD)]))
    found = replay([data, *(json.dumps(line).encode() for line in lines)])
    render.overview(found, "1")
    render.differences(found)
    for uid in found.stories:
        render.story(found, uid)


def _change(value: Any, way: list[int], odd: Any) -> None:
    """Replace what lies at the end of a way of numbers, or before, where it ends earlier."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[way[0] % len(keys)]
        if len(way) == 1 or not isinstance(value[key], dict | list) or not value[key]:
            value[key] = odd
            return
        value, way = value[key], way[1:]

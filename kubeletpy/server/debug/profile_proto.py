"""A CPU profile in the format that ``go tool pprof`` and other tools read. Pure.

Source: pprof's profile.proto (message perftools.profiles.Profile), gzipped.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread was: function, file, line."""

    function: str
    file: str
    line: int


Stack = tuple[Place, ...]
"""The innermost place first."""


@dataclass(slots=True)
class Weight:
    """How often a stack was seen, and the nanoseconds of CPU time that were spent in it."""

    samples: int = 0
    nanoseconds: int = 0


def encode(stacks: Mapping[Stack, Weight], *, began_ns: int, took_ns: int, period_ns: int) -> bytes:
    """The profile. ``began_ns`` since the epoch; ``period_ns`` is the CPU time between samples."""
    strings = _Strings()
    places: dict[Place, int] = {}
    functions: dict[tuple[str, str], int] = {}
    for stack in stacks:
        for place in stack:
            places.setdefault(place, len(places) + 1)
            functions.setdefault((place.function, place.file), len(functions) + 1)
    out = bytearray()
    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        out += _message(1, _value_type(strings, kind, unit))
    for stack, weight in stacks.items():
        sample = _packed(1, (places[place] for place in stack))
        out += _message(2, sample + _packed(2, (weight.samples, weight.nanoseconds)))
    for place, number in places.items():
        line = _number(1, functions[place.function, place.file]) + _number(2, place.line)
        out += _message(4, _number(1, number) + _message(4, line))
    for (name, file), number in functions.items():
        text = strings.index(name)
        function = _number(1, number) + _number(2, text) + _number(3, text)
        out += _message(5, function + _number(4, strings.index(file)))
    out += _number(9, began_ns) + _number(10, took_ns)
    out += _message(11, _value_type(strings, "cpu", "nanoseconds")) + _number(12, period_ns)
    for each in strings.all:
        out += _message(6, each.encode("utf-8", "replace"))
    return gzip.compress(bytes(out), mtime=0)


def folded(stacks: Mapping[Stack, Weight]) -> str:
    """The profile as text: a line per stack, outermost first, and its microseconds."""
    lines = (
        ";".join(f"{place.function} ({place.file}:{place.line})" for place in reversed(stack))
        + f" {weight.nanoseconds // 1000}"
        for stack, weight in sorted(stacks.items(), key=lambda each: -each[1].nanoseconds)
    )
    return "".join(f"{line}\n" for line in lines)


class _Strings:
    def __init__(self) -> None:
        self.all = [""]
        self._index = {"": 0}

    def index(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self.all)
            self.all.append(text)
        return self._index[text]


def _value_type(strings: _Strings, kind: str, unit: str) -> bytes:
    return _number(1, strings.index(kind)) + _number(2, strings.index(unit))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(_varint(value) for value in values))

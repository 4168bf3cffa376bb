"""A CPU profile in the format that ``go tool pprof`` and other tools read. Pure.

Source: pprof's profile.proto (message perftools.profiles.Profile), gzipped.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.base.wire.api_messages import MessageField, message_classes


class CodeLocation(Struct, frozen=True):
    """A position of a thread: function, file, line."""

    function: str
    file: str
    line: int


Stack = tuple[CodeLocation, ...]
"""The innermost location first."""


class Weight(Struct):
    """The number of samples of a stack, and the nanoseconds of CPU time spent in it."""

    samples: int = 0
    nanoseconds: int = 0


_FIELDS = {
    "ValueType": (MessageField(1, "type", "int64"), MessageField(2, "unit", "int64")),
    "Sample": (
        MessageField(1, "location_id", "uint64", repeated=True),
        MessageField(2, "value", "int64", repeated=True),
    ),
    "Location": (MessageField(1, "id", "uint64"), MessageField(4, "line", "Line", repeated=True)),
    "Line": (MessageField(1, "function_id", "uint64"), MessageField(2, "line", "int64")),
    "Function": (
        MessageField(1, "id", "uint64"),
        MessageField(2, "name", "int64"),
        MessageField(3, "system_name", "int64"),
        MessageField(4, "filename", "int64"),
    ),
    "Profile": (
        MessageField(1, "sample_type", "ValueType", repeated=True),
        MessageField(2, "sample", "Sample", repeated=True),
        MessageField(4, "location", "Location", repeated=True),
        MessageField(5, "function", "Function", repeated=True),
        MessageField(6, "string_table", "string", repeated=True),
        MessageField(9, "time_nanos", "int64"),
        MessageField(10, "duration_nanos", "int64"),
        MessageField(11, "period_type", "ValueType"),
        MessageField(12, "period", "int64"),
    ),
}


def encode(stacks: Mapping[Stack, Weight], *, began_ns: int, took_ns: int, period_ns: int) -> bytes:
    """Return the profile. ``began_ns``: since the epoch; ``period_ns``: between samples."""
    strings = _Strings()
    locations: dict[CodeLocation, int] = {}
    functions: dict[tuple[str, str], int] = {}
    for stack in stacks:
        for location in stack:
            locations.setdefault(location, len(locations) + 1)
            functions.setdefault((location.function, location.file), len(functions) + 1)
    profile = message_classes("perftools.profiles", _FIELDS)["Profile"](
        time_nanos=began_ns, duration_nanos=took_ns, period=period_ns
    )
    for kind, unit in (("samples", "count"), ("cpu", "nanoseconds")):
        profile.sample_type.add(type=strings.index(kind), unit=strings.index(unit))
    profile.period_type.CopyFrom(profile.sample_type[1])
    for stack, weight in stacks.items():
        ids = [locations[location] for location in stack]
        profile.sample.add(location_id=ids, value=(weight.samples, weight.nanoseconds))
    for location, number in locations.items():
        line = {"function_id": functions[location.function, location.file], "line": location.line}
        profile.location.add(id=number, line=[line])
    for (name, file), number in functions.items():
        text = strings.index(name)
        profile.function.add(id=number, name=text, system_name=text, filename=strings.index(file))
    profile.string_table.extend(each.encode("utf-8", "replace") for each in strings.all)
    return gzip.compress(profile.SerializeToString(), mtime=0)


def folded(stacks: Mapping[Stack, Weight]) -> str:
    """Return the profile as text: a line per stack, outermost first, with its microseconds."""
    lines = (
        ";".join(
            f"{location.function} ({location.file}:{location.line})" for location in reversed(stack)
        )
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

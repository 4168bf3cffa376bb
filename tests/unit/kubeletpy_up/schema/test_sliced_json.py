"""JSON encoded in steps gives the same text; values are counted without parsing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy_up.schema.sliced_json import count_values, encode

DEEP: Any = 1
for _ in range(450):
    DEEP = [DEEP, {"a": DEEP}] if _ < 5 else {"a": DEEP}

VALUES: list[Any] = [
    {},
    [],
    None,
    True,
    1.5,
    -(2**70),
    "text",
    'é\u2028\ud800"\\\x00',
    {"a": {}},
    {"a": []},
    {"a": {"b": 1}},
    {"a": 1, "b": {"c": 2}, "d": 3},
    {"a": {"b": 1}, "c": {"d": {}}},
    [{}, []],
    [1, {"a": 1}, 2],
    [[1], [[], [2]]],
    [[]] * 300,
    [{"a": [index]} for index in range(600)],
    list(range(256)),
    list(range(257)),
    {f"k{index}": index for index in range(256)},
    {f"k{index}": index for index in range(1000)},
    {f"k{index}": [index] if index % 300 == 0 else index for index in range(1000)},
    DEEP,
]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_the_text_is_that_of_json_dumps(value: Any, ascii_only: bool) -> None:
    expected = json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
    assert encode(value, ascii_only=ascii_only) == expected


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 0),
        (b"{}", 1),
        (b"[]", 3),
        (b'{"a":1,"b":[2,3]}', 6),
        (b'{"a":"' + b"," * 500_000 + b'"}', 1),
        (b'{"a":"' + b'\\",[{' * 100_000 + b'"}', 1),
        (b'{"a":"' + b"\\\\" * 100_000 + b'",' + b"1," * 3 + b"}", 5),
        (b'{"a":"' + b"x" * (131_072 - 7) + b'\\",,,"}', 1),
        (b'{"a":"' + b"x" * (131_072 - 8) + b'\\\\",,,}', 4),
        (b'["a","b"]', 4),
        (b"[" + b"1," * 200_000, 200_003),
    ],
)
def test_values_are_counted_outside_of_text(body: bytes, count: int) -> None:
    assert count_values(body, 10**9) == count


def test_counting_ends_above_the_bound() -> None:
    assert 1000 < count_values(b"[" * 3_000_000, 1000) < 600_000

"""JSON in small steps, for use on a thread: other threads can run between two steps.

``json.dumps`` of an object with 300,000 values blocks every other thread for 70 ms, and
``json.loads`` of a body of brackets for a second. Pure.
"""

from __future__ import annotations

import json
from typing import Any

_PIECE = 256
"""Maximum number of members that are encoded in one step."""
_WINDOW = 128 << 10
_ARRAY = 3
"""The weight of an array: the parser makes arrays without a pause, and they are slow to make."""
_ESCAPES = ((b"\\\\", b""), (b'\\"', b""))


def encode(value: Any, *, ascii_only: bool = False) -> str:
    """The compact JSON of a value: the same text as json.dumps makes."""
    dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=ascii_only).encode
    pieces: list[str] = []

    def write(value: Any) -> None:
        if isinstance(value, dict) and value:
            _members(value)
        elif isinstance(value, list) and value:
            _elements(value)
        else:
            pieces.append(dumps(value))

    def _members(value: dict[str, Any]) -> None:
        between = "{"
        plain: dict[str, Any] = {}
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                if plain:
                    pieces.append(between + dumps(plain)[1:-1])
                    plain, between = {}, ","
                pieces.append(f"{between}{dumps(key)}:")
                between = ","
                write(item)
                continue
            plain[key] = item
            if len(plain) == _PIECE:
                pieces.append(between + dumps(plain)[1:-1])
                plain, between = {}, ","
        pieces.append(f"{between}{dumps(plain)[1:-1]}}}" if plain else "}")

    def _elements(value: list[Any]) -> None:
        between = "["
        for start in range(0, len(value), _PIECE):
            part = value[start : start + _PIECE]
            if any(isinstance(item, dict | list) and item for item in part):
                for item in part:
                    pieces.append(between)
                    between = ","
                    write(item)
            else:
                pieces.append(between + dumps(part)[1:-1])
                between = ","
        pieces.append("]")

    try:
        write(value)
    except RecursionError:  # as deep as only the parser can go, and so not large
        return dumps(value)
    return "".join(pieces)


def count_values(body: bytes, most: int) -> int:
    """About how many values JSON has that is not parsed yet; counting ends above ``most``.

    Text in quotes does not count, whatever it contains.
    """
    inside, seen, rest = False, 0, b""
    for start in range(0, len(body), _WINDOW):
        window = rest + body[start : start + _WINDOW]
        backslashes = len(window) - len(window.rstrip(b"\\"))
        rest = b"\\" if backslashes % 2 else b""
        window = window[: len(window) - len(rest)]
        for escape, nothing in _ESCAPES:
            window = window.replace(escape, nothing)
        parts = window.split(b'"')
        outside = b"".join(parts[1 if inside else 0 :: 2])
        inside ^= len(parts) % 2 == 0
        seen += outside.count(b",") + outside.count(b"{") + _ARRAY * outside.count(b"[")
        if seen > most:
            break
    return seen

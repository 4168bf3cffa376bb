"""Objects that clients send as Kubernetes protobuf, read into JSON.

kubectl's typed commands (``create configmap``, ``create token``, ``drain``, …) send nothing else.
Field numbers come from ``data/api-wire.json``. What the table does not know is skipped, as protobuf
means it. Hostile input: every length is checked and nesting is bounded. We never write protobuf.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from kubeletpy.api.times import format_micro_time, format_time
from kubeletpy.api.types import JSON
from kubeletpy_up.data import load_json
from kubeletpy_up.errors import bad_request

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_MAX_DEPTH = 48
_MAX_VARINT_BYTES = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Table = dict[str, dict[int, tuple[str, str]]]


class _Malformed(Exception):
    """Not a message of that type."""


@cache
def _table() -> Table:
    loaded: dict[str, dict[str, list[str]]] = load_json("api-wire.json")
    return {
        message: {int(number): (name, kind) for number, (name, kind) in fields.items()}
        for message, fields in loaded.items()
    }


def decode(body: bytes) -> JSON:
    """Read a body of media type ``application/vnd.kubernetes.protobuf``.

    Raises:
        ApiError: 400, malformed, or of a kind that this server can't read as protobuf.
    """
    try:
        if not body.startswith(_MAGIC):
            raise _Malformed
        envelope = _fields(memoryview(body)[len(_MAGIC) :])
        kind, api_version, raw = "", "", memoryview(b"")
        for number, value in envelope:
            if number == 1 and isinstance(value, memoryview):
                for inner, text in _fields(value):
                    if inner == 1:
                        api_version = _text(text)
                    elif inner == 2:
                        kind = _text(text)
            elif number == 2 and isinstance(value, memoryview):
                raw = value
        group = api_version.rpartition("/")[0] or "core"
        message = "meta/DeleteOptions" if kind == "DeleteOptions" else f"{group}/{kind}"
        if message not in _table():
            raise bad_request(f"{kind or 'this kind'} in {api_version} can't be read as protobuf")
        return {"kind": kind, "apiVersion": api_version, **_message(message, raw, 0)}
    except (_Malformed, UnicodeDecodeError, ValueError, OverflowError):
        raise bad_request("couldn't read the request as Kubernetes protobuf") from None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    for _ in range(_MAX_VARINT_BYTES):
        if at >= len(data):
            raise _Malformed
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise _Malformed


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise _Malformed
        if size > len(data) - at:
            raise _Malformed
        if wire == _BYTES:
            yield tag >> 3, data[at : at + size]
        at += size


def _text(value: int | memoryview) -> str:
    if isinstance(value, int):
        raise _Malformed
    return bytes(value).decode()


def _signed(value: int | memoryview) -> int:
    if not isinstance(value, int):
        raise _Malformed
    return value - (1 << 64) if value >= 1 << 63 else value


def _message(name: str, data: memoryview, depth: int) -> JSON:
    if depth > _MAX_DEPTH:
        raise _Malformed
    known = _table()[name]
    found: JSON = {}
    for number, value in _fields(data):
        if number not in known:
            continue
        key, kind = known[number]
        if kind.startswith("^"):
            found.update(_inline(kind[1:], value, depth))
        elif kind.startswith("[]"):
            found.setdefault(key, []).extend(_items(kind[2:], value, depth))
        elif kind.startswith("map "):
            entry_key, entry = _entry(kind[4:], value, depth)
            found.setdefault(key, {})[entry_key] = entry
        elif kind.startswith("*"):
            found[key] = _value(kind[1:], value, depth)
        else:
            plain = _value(kind, value, depth)
            # Go writes a field that is no pointer even if nobody set it: empty means absent.
            if plain not in ("", 0, False, None, {}):
                found[key] = plain
    return found


def _inline(kind: str, value: int | memoryview, depth: int) -> JSON:
    inner = _value(kind, value, depth)
    return inner if isinstance(inner, dict) else {}


def _items(kind: str, value: int | memoryview, depth: int) -> list[Any]:
    if kind in ("int", "bool") and isinstance(value, memoryview):
        at, packed = 0, []
        while at < len(value):
            number, at = _varint(value, at)
            packed.append(_value(kind, number, depth))
        return packed
    return [_value(kind, value, depth)]


def _entry(kind: str, value: int | memoryview, depth: int) -> tuple[str, Any]:
    if isinstance(value, int):
        raise _Malformed
    key: str = ""
    inner: int | memoryview = memoryview(b"")
    for number, part in _fields(value):
        if number == 1:
            key = _text(part)
        elif number == 2:
            inner = part
    return key, _value(kind, inner, depth)


def _value(kind: str, value: int | memoryview, depth: int) -> Any:
    if kind == "string":
        return _text(value)
    if kind == "int":
        return _signed(value)
    if kind == "bool":
        return bool(_signed(value))
    if isinstance(value, int):
        raise _Malformed
    if kind == "bytes":
        return base64.b64encode(bytes(value)).decode()
    special = _SPECIAL.get(kind)
    if special is not None:
        parts: dict[int, Any] = {}
        for number, part in _fields(value):
            parts.setdefault(number, []).append(part)
        return special(parts)
    return _message(kind, value, depth + 1)


def _time(parts: dict[int, Any], *, micro: bool = False) -> str | None:
    if not parts:
        return None
    seconds = _signed(parts.get(1, [0])[-1])
    nanos = _signed(parts.get(2, [0])[-1])
    return format_micro_time(seconds + nanos / 1e9) if micro else format_time(seconds)


def _int_or_string(parts: dict[int, Any]) -> int | str:
    if _signed(parts.get(1, [0])[-1]) == 1:
        return _text(parts.get(3, [memoryview(b"")])[-1])
    return _signed(parts.get(2, [0])[-1])


_SPECIAL: dict[str, Any] = {
    "Quantity": lambda parts: _text(parts.get(1, [memoryview(b"0")])[-1]),
    "Time": _time,
    "MicroTime": lambda parts: _time(parts, micro=True),
    "IntOrString": _int_or_string,
    "Duration": lambda parts: f"{_signed(parts.get(1, [0])[-1])}ns",
    "FieldsV1": lambda parts: json.loads(_text(parts.get(1, [memoryview(b"{}")])[-1])),
    "ExtraValue": lambda parts: [_text(part) for part in parts.get(1, [])],
}

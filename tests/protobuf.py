"""Kubernetes' protobuf encoded by hand, as Go encodes it."""

from __future__ import annotations


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: bytes | str | int) -> bytes:
    """A field: a number as a varint, a text, or an encoded message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def entry(key: str, value: bytes | str) -> bytes:
    """An entry of a map."""
    return field(1, key) + field(2, value)


def body(
    api_version: str, kind: str, message: bytes, *, encoding: str = "", media_type: str = ""
) -> bytes:
    """A message in its envelope."""
    about = field(1, api_version) + field(2, kind)
    rest = field(3, encoding) + field(4, media_type)
    return b"k8s\0" + field(1, about) + field(2, message) + rest

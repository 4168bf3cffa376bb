"""D-Bus messages and their bytes, as far as talking to logind takes. Pure.

Source: D-Bus specification 0.43, message format. Knows the types b i u t s o g h v y; a message
with others is read without its body. Must never trust a peer: a message has a limit.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_MESSAGE = 64 * 1024
"""Bytes."""
CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
_PATH, _INTERFACE, _MEMBER, _ERROR, _REPLY, _TO, _FROM, _SIGNATURE, _FDS = range(1, 10)
_FIELDS = {
    _PATH: ("path", "o"),
    _INTERFACE: ("interface", "s"),
    _MEMBER: ("member", "s"),
    _ERROR: ("error", "s"),
    _REPLY: ("reply_to", "u"),
    _TO: ("destination", "s"),
    _FROM: ("sender", "s"),
    _SIGNATURE: ("signature", "g"),
    _FDS: ("files_count", "u"),
}
_FIXED = {"y": ("B", 1), "b": ("I", 4), "i": ("i", 4), "u": ("I", 4), "t": ("Q", 8), "h": ("I", 4)}


class DBusError(Exception):
    """The bus, or who was called, said no; or what came was no D-Bus."""


@dataclass(slots=True)
class Message:
    """One message."""

    kind: int
    serial: int = 0
    path: str = ""
    interface: str = ""
    member: str = ""
    error: str = ""
    reply_to: int = 0
    destination: str = ""
    sender: str = ""
    signature: str = ""
    body: tuple[Any, ...] = ()
    files_count: int = 0
    files: list[int] = field(default_factory=list)
    """Descriptors that came with it; whoever takes the message owns them."""


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, size: int) -> None:
        self.data += bytes(-len(self.data) % size)

    def put(self, signature: str, values: Sequence[Any]) -> None:
        for kind, value in zip(signature, values, strict=True):
            if kind in _FIXED:
                code, size = _FIXED[kind]
                self.align(size)
                self.data += struct.pack(f"<{code}", value)
            elif kind in "so":
                text = value.encode()
                self.put("u", (len(text),))
                self.data += text + b"\0"
            elif kind == "g":
                self.data += bytes([len(value)]) + value.encode() + b"\0"
            elif kind == "v":
                self.put("g", (value[0],))
                self.put(value[0], (value[1],))
            else:
                raise DBusError(f"type {kind!r} is not known here")


class _Reader:
    def __init__(self, data: bytes, order: str, at: int = 0) -> None:
        self.data, self.order, self.at = data, order, at

    def align(self, size: int) -> None:
        self.at += -self.at % size

    def take(self, signature: str) -> list[Any]:
        return [self._one(kind) for kind in signature]

    def _bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise DBusError("a message ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def _one(self, kind: str) -> Any:
        if kind in _FIXED:
            code, size = _FIXED[kind]
            self.align(size)
            value = struct.unpack(self.order + code, self._bytes(size))[0]
            return bool(value) if kind == "b" else value
        if kind in "so":
            text = self._bytes(self._one("u")).decode(errors="replace")
            self._bytes(1)
            return text
        if kind == "g":
            text = self._bytes(self._one("y")).decode(errors="replace")
            self._bytes(1)
            return text
        if kind == "v":
            inner = self._one("g")
            if len(inner) != 1 or inner == "v":
                raise DBusError(f"a variant of {inner!r} is not known here")
            return self._one(inner)
        raise DBusError(f"type {kind!r} is not known here")


def encode(message: Message) -> bytes:
    """A message as it goes over the wire (little endian); its files go beside it."""
    body = _Writer()
    body.put(message.signature, message.body)
    fields = _Writer()
    message.files_count = len(message.files)
    for code, (name, kind) in _FIELDS.items():
        value = getattr(message, name)
        if value:
            fields.align(8)
            fields.put("yv", (code, (kind, value)))
    head = _Writer()
    head.data += bytes((ord("l"), message.kind, 0, 1))
    head.put("uuu", (len(body.data), message.serial, len(fields.data)))
    head.data += fields.data
    head.align(8)
    return bytes(head.data + body.data)


def decode(data: bytes) -> tuple[Message, int] | None:
    """The first message of some bytes and its length; None: more is needed. Raises DBusError."""
    if len(data) < 16:
        return None
    order = {ord("l"): "<", ord("B"): ">"}.get(data[0])
    if order is None or data[3] != 1:
        raise DBusError("what came is no D-Bus message")
    body_size, serial, fields_size = struct.unpack(order + "III", data[4:16])
    start = 16 + fields_size + (-fields_size % 8)
    if start + body_size > MAX_MESSAGE:
        raise DBusError(f"a message of {start + body_size} bytes is too long")
    if len(data) < start + body_size:
        return None
    message = Message(kind=data[1], serial=serial)
    reader = _Reader(data[: 16 + fields_size], order, 16)
    while reader.at < 16 + fields_size:
        reader.align(8)
        code, value = reader.take("yv")
        if code in _FIELDS:
            setattr(message, _FIELDS[code][0], value)
    if set(message.signature) <= set("biutsoghvy"):
        body = _Reader(data[start : start + body_size], order)
        message.body = tuple(body.take(message.signature))
    return message, start + body_size

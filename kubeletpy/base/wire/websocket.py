"""The server half of WebSocket: a client's frames to messages, and messages to frames.

Strict: whatever must fail the connection by RFC 6455 does, with the close code that it names. There
are no extensions, so reserved bits are always 0. Must never hold more than one message, nor take
more than one frame at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

from kubeletpy.base.structs import Component, Struct

FRAGMENT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_OPCODES = frozenset({FRAGMENT, TEXT, BINARY, CLOSE, PING, PONG})
_FIN, _RESERVED, _OPCODE = 0x80, 0x70, 0x0F
_MASKED, _LENGTH = 0x80, 0x7F
MAX_CONTROL = 125
"""Bytes of a control frame (RFC 6455, 5.5)."""
_CODE = struct.Struct(">H")


class CloseCode(IntEnum):
    """Why a connection is closed (RFC 6455, 7.4.1)."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    NOT_UTF8 = 1007
    TOO_BIG = 1009


_SENDABLE = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""Codes below 3000 that a peer may send: registered ones, without those for programs alone."""


class ProtocolError(ValueError):
    """The client broke the protocol: the connection is closed with ``code``."""

    def __init__(self, code: CloseCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class Message(Struct, frozen=True):
    """A complete message, or a control frame; of CLOSE, ``data`` is the code's two bytes.

    A FRAGMENT is a frame that completes no message.
    """

    kind: int
    data: bytes


class WebSocketDecoder(Component):
    """Turns a client's bytes, in pieces of any size, into messages of at most ``most`` bytes."""

    most: int

    def __post_init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._kind = 0
        """Opcode of the message whose fragments are under way; 0: there is none."""
        self._partial = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes; :meth:`take` returns what they complete."""
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    def next_message(self) -> Message | None:
        """The message of the next frame; None: it is not complete. Raises ProtocolError."""
        frame = self._frame()
        return None if frame is None else self._message_of(*frame)

    def _frame(self) -> tuple[int, bool, bytes] | None:
        """Opcode, whether it is the last of its message, and content."""
        buffer, at = self._buffer, self._at
        if len(buffer) - at < 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        kind, size = first & _OPCODE, second & _LENGTH
        if first & _RESERVED:
            raise _broken("a reserved bit is set")
        if kind not in _OPCODES:
            raise _broken(f"opcode {kind} is unknown")
        if not second & _MASKED:
            raise _broken("a frame is not masked")
        if kind >= CLOSE and (size > MAX_CONTROL or not first & _FIN):
            raise _broken("a control frame is too long or fragmented")
        at += 2
        if size > MAX_CONTROL:
            width = 2 if size == 126 else 8
            if len(buffer) - at < width:
                return None
            size = int.from_bytes(buffer[at : at + width], "big")
            at += width
            if size < 126 or (width == 8 and (size < 1 << 16 or size >> 63)):
                raise _broken("a length is not encoded as it has to be")
        if kind < CLOSE and size + len(self._partial) > self.most:
            text = f"a message is larger than {self.most} bytes"
            raise ProtocolError(CloseCode.TOO_BIG, text)
        end = at + 4 + size
        if len(buffer) < end:
            return None
        data = buffer[at + 4 : end]
        if size:
            apply_mask(bytes(buffer[at : at + 4]), data)
        self._at = end
        return kind, bool(first & _FIN), bytes(data)

    def _message_of(self, kind: int, last: bool, data: bytes) -> Message:
        if kind >= CLOSE:
            return Message(kind, _close_code(data) if kind == CLOSE else data)
        if (kind == FRAGMENT) != bool(self._kind):
            raise _broken("a fragment is not where it has to be")
        if not last:
            self._kind = self._kind or kind
            self._partial += data
            return Message(FRAGMENT, b"")
        if self._kind:
            kind, data = self._kind, bytes(self._partial + data)
            self._kind, self._partial = 0, bytearray()
        if kind == TEXT:
            _must_be_utf8(data)
        return Message(kind, data)


def _close_code(data: bytes) -> bytes:
    """The code of a close frame; empty where it has none."""
    if not data:
        return data
    if len(data) == 1:
        raise _broken("a close frame has half a code")
    (code,) = _CODE.unpack_from(data)
    if code not in _SENDABLE and not 3000 <= code < 5000:
        raise _broken(f"close code {code} is not for frames")
    _must_be_utf8(data[2:])
    return data[:2]


def _must_be_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise ProtocolError(CloseCode.NOT_UTF8, "a text is not UTF-8") from None


def _broken(why: str) -> ProtocolError:
    return ProtocolError(CloseCode.PROTOCOL_ERROR, why)


def encoded(kind: int, *parts: bytes) -> bytes:
    """A server's frame: a complete message, not masked."""
    size = sum(map(len, parts))
    if size <= MAX_CONTROL:
        head = bytes((_FIN | kind, size))
    elif size < 1 << 16:
        head = struct.pack(">BBH", _FIN | kind, 126, size)
    else:
        head = struct.pack(">BBQ", _FIN | kind, 127, size)
    return b"".join((head, *parts))


def close_frame(code: int) -> bytes:
    """A server's close frame."""
    return encoded(CLOSE, _CODE.pack(code))


def mask_slowly(mask: bytes, data: bytearray) -> None:
    """XOR ``data`` with a repeated mask of four bytes, in place."""
    size = len(data)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
    data[:] = (int.from_bytes(data, "little") ^ key).to_bytes(size, "little")


def _fastest_mask() -> Callable[[bytes, bytearray], None]:
    """aiohttp's, in C (2 µs for 32 KiB instead of 100); where it has none at that name, ours."""
    try:
        from aiohttp._websocket.helpers import websocket_mask
    except ImportError:
        return mask_slowly
    return websocket_mask


apply_mask = _fastest_mask()

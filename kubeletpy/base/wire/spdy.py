"""SPDY/3 as far as Kubernetes uses it: frames to bytes and back. Pure.

Kubernetes' SPDY has no flow control and no priorities; the headers of a stream state its use.
A header block is decompressed only where its streams are served, up to MAX_CONTROL bytes.
Source: the SPDY protocol, draft 3 (sections 2.2 and 2.6).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping

from kubeletpy.base.structs import Struct

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY = 1, 2, 3, 4, 6, 7
DATA = 0
"""Kind of a data frame; the other kinds are the protocol's control frame numbers."""
FIN = 0x01
MAX_FRAME = (1 << 24) - 1
MAX_CONTROL = 64 << 10
"""Maximum bytes of a control frame; those of Kubernetes have a few hundred."""
_CONTROL = 0x8003
_REFUSED_STREAM = 3
_BEFORE_HEADERS = 6
"""Bytes between a SYN_STREAM's number and its headers: the associated stream, and priorities."""
_HEAD = struct.Struct(">HHI")
_NUMBER = struct.Struct(">I")

_PARTS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language "
    "accept-ranges age allow authorization cache-control connection content-base content-encoding "
    "content-language content-length content-location content-md5 content-range content-type date "
    "etag expect expires from host if-match if-modified-since if-none-match if-range "
    "if-unmodified-since last-modified location max-forwards pragma proxy-authenticate "
    "proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url "
    "public set-cookie keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, "
    "Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age="
    "gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    parts = (word.replace("_", " ").encode() for word in _PARTS.split())
    return b"".join(_NUMBER.pack(len(word)) + word for word in parts) + _TEXT.encode()


DICTIONARY = _dictionary()
"""The initial dictionary for compressing header blocks."""


class SpdyError(ValueError):
    """The input is not SPDY/3."""


class Frame(Struct, frozen=True):
    """One frame; ``stream`` is the number of the stream, or of a ping."""

    kind: int
    stream: int
    flags: int = 0
    data: bytes = b""

    @property
    def is_last(self) -> bool:
        """Whether the peer sends no more on this stream."""
        return self.kind == RST_STREAM or bool(self.kind in (DATA, SYN_REPLY) and self.flags & FIN)


class SpdyDecoder:
    """Turns bytes, in pieces of any size, into frames. Buffers at most MAX_CONTROL bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._stream = self._flags = self._left = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames now complete; a partial data frame is returned as a frame of its own.

        Only the last piece of a data frame carries its flags. Raises SpdyError.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, size = 0, len(data)
        while at < size:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                yield Frame(DATA, self._stream, 0 if self._left else self._flags, piece)
                continue
            if size - at < _HEAD.size:
                break
            first, second, last = _HEAD.unpack_from(data, at)
            flags, length = last >> 24, last & MAX_FRAME
            if not first & 0x8000:
                at += _HEAD.size
                self._stream, self._flags, self._left = first << 16 | second, flags, length
                if not length:
                    yield Frame(DATA, self._stream, flags)
                continue
            if first != _CONTROL:
                raise SpdyError("not version 3")
            if length > MAX_CONTROL:
                raise SpdyError("a control frame is too long")
            end = at + _HEAD.size + length
            if size < end:
                break
            yield _control_frame(second, flags, data[at + _HEAD.size : end])
            at = end
        self._rest = data[at:]


def _control_frame(kind: int, flags: int, body: bytes) -> Frame:
    if kind in (SETTINGS, GOAWAY):
        return Frame(kind, 0, flags, body)
    if len(body) < _NUMBER.size:
        raise SpdyError("a control frame is too short")
    (number,) = _NUMBER.unpack_from(body)
    return Frame(kind, number & 0x7FFFFFFF, flags, body[_NUMBER.size :])


class HeaderDecoder:
    """Reads the headers of a peer's SYN_STREAM frames, all of which share one compression."""

    def __init__(self) -> None:
        self._decompressor = zlib.decompressobj(zdict=DICTIONARY)

    def headers(self, opened: Frame) -> dict[str, str]:
        """The headers of a stream by name, in lower case. Raises SpdyError."""
        try:
            block = self._decompressor.decompress(opened.data[_BEFORE_HEADERS:], MAX_CONTROL)
            if self._decompressor.unconsumed_tail or self._decompressor.eof:
                raise SpdyError("the headers of a stream are too long")
            (left,), at = _NUMBER.unpack_from(block), _NUMBER.size
            texts = []
            for _ in range(2 * left):
                (size,) = _NUMBER.unpack_from(block, at)
                at += _NUMBER.size + size
                if at > len(block):
                    raise SpdyError("the headers of a stream are cut off")
                texts.append(block[at - size : at].decode("latin-1"))
        except (zlib.error, struct.error) as error:
            raise SpdyError(f"the headers of a stream can't be read: {error}") from None
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}


class Encoder:
    """Encodes a peer's frames, which share one header compression; a client's streams are odd."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(9, zdict=DICTIONARY)
        self._next = 1

    def open_stream(self, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """The number of a new stream, and the frame that opens it."""
        number, self._next = self._next, self._next + 2
        return number, _control(
            SYN_STREAM, struct.pack(">IIH", number, 0, 0) + self._block(headers)
        )

    def accept_stream(self, number: int) -> bytes:
        """The frame that accepts a stream of the peer."""
        return _control(SYN_REPLY, _NUMBER.pack(number) + self._block({}))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        block = _NUMBER.pack(len(headers))
        for key, value in headers.items():
            for text in (key.lower().encode(), value.encode()):
                block += _NUMBER.pack(len(text)) + text
        return self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)


def data(stream: int, content: bytes, *, last: bool = False) -> bytes:
    """Frames that carry bytes on a stream; ``last``: no more will follow."""
    frames = b""
    for start in range(0, len(content) or 1, MAX_FRAME):
        piece = content[start : start + MAX_FRAME]
        flags = FIN if last and start + MAX_FRAME >= len(content) else 0
        frames += struct.pack(">II", stream, flags << 24 | len(piece)) + piece
    return frames


def refused_stream(number: int) -> bytes:
    """The frame that refuses a stream of the peer."""
    return _control(RST_STREAM, struct.pack(">II", number, _REFUSED_STREAM))


def ping_answer(number: int) -> bytes:
    """The answer to the peer's ping."""
    return _control(PING, _NUMBER.pack(number))


def _control(kind: int, body: bytes) -> bytes:
    return _HEAD.pack(_CONTROL, kind, len(body)) + body

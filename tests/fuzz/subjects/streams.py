"""Data that the runtime's streaming server and clients send while a stream is open."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeletpy.base.wire import spdy, websocket
from kubeletpy.base.wire.upgrade import MAX_HEAD, UpgradeFailed, read_answer
from kubeletpy.server.streaming.link import Translation
from kubeletpy.server.streaming.options import Streams
from tests.fuzz.target import pieces, target

_OPENED = spdy.Encoder().open_stream({"streamtype": "stdout"})[1]


def _frames(parts: list[bytes]) -> tuple[list[spdy.Frame], str]:
    """Data of one stream in a row as one frame, and how it ended."""
    found: list[spdy.Frame] = []
    decoder = spdy.SpdyDecoder()
    try:
        for part in parts:
            for frame in decoder.feed(part):
                assert len(decoder._rest) <= spdy.MAX_CONTROL + 8
                last = found[-1] if found else None
                is_more = (
                    frame.kind == spdy.DATA
                    and last is not None
                    and (last.kind, last.stream, last.flags) == (spdy.DATA, frame.stream, 0)
                )
                if is_more and last is not None:
                    found.pop()
                    frame = spdy.Frame(  # noqa: PLW2901
                        spdy.DATA, frame.stream, frame.flags, last.data + frame.data
                    )
                found.append(frame)
    except spdy.SpdyError as error:
        return found, str(error)
    return found, ""


@target(
    seeds=(b"\0\0" + _OPENED + spdy.data(1, b"hello", last=True) + spdy.ping_answer(7),),
    parts=(b"\x80\x03\0\1", b"\x80\x03\0\3", b"\x80\x03\0\4", b"\0\0\0\1", b"\1\0\0\0"),
)
def spdy_frames(data: bytes) -> None:
    """The same frames come however they are cut into pieces."""
    parts = list(pieces(data))
    assert _frames(parts) == _frames([b"".join(parts)])


class _Ends:
    """A client's WebSocket, and the runtime's connection."""

    def __init__(self, sent: list[bytes], stated: list[bytes]) -> None:
        self.sent, self.stated = sent, stated
        self.written = bytearray()

    async def receive(self) -> bytes | None:
        return self.sent.pop(0) if self.sent else None

    async def send(self, channel: bytes, data: bytes) -> None:
        assert channel[0] in (1, 2, 3)
        assert data

    async def read(self, _size: int) -> bytes:
        return self.stated.pop(0) if self.stated else b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        return


def _client_frames(parts: list[bytes]) -> tuple[list[websocket.Message], int]:
    """Messages of a client, and the code that it is closed with."""
    decoder, found = websocket.WebSocketDecoder(1000), []
    try:
        for part in parts:
            decoder.feed(part)
            while (message := decoder.next_message()) is not None:
                found.append(message)
    except websocket.ProtocolError as error:
        return found, error.code
    return found, 0


@target(
    seeds=(
        b"\0\0\x82\x85\1\2\3\4hello\x89\x80\0\0\0\0\x88\x82\0\0\0\0\3\xe8",
        b"\0\0\1\x81\0\0\0\0a\0\x80\0\0\0\0\x80\x81\0\0\0\0b",
        b"\0\0\x82\xfe\0\x80\0\0\0\0" + b"x" * 128,
    ),
    parts=(b"\x82\x81\0\0\0\0", b"\x88\x80", b"\xff", b"\xfe", b"\0\0\0\0"),
)
def websocket_frames(data: bytes) -> None:
    """The same messages come however a client cuts its bytes into pieces."""
    parts = list(pieces(data))
    assert _client_frames(parts) == _client_frames([b"".join(parts)])


_LOOP = asyncio.new_event_loop()


@target(
    spdy.SpdyError,
    seeds=(b"\0\0\0hello\xff\4{}\xff\0", b"\1\1\0a\xff\xff\0\0b"),
    parts=(b"\xff\0", b"\xff\4", b"\0", b"\4"),
)
def websocket_messages(data: bytes) -> None:
    """Messages of a client become frames, and frames of the runtime messages."""
    ends: Any = _Ends(list(pieces(data)), list(pieces(data)))

    async def both() -> None:
        translation = Translation(ends, ends, ends)
        translation._open(Streams(stdin=True, stdout=True, stderr=True, tty=data[:1] == b"\1"))
        await translation._to_runtime()
        await translation._to_client()

    try:
        _LOOP.run_until_complete(both())
    finally:
        frames, why = _frames([bytes(ends.written)])
        assert not why, "what is sent to the runtime is sound"
        assert all(frame.stream % 2 for frame in frames if frame.kind == spdy.DATA)


HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n"
REFUSED = b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"


class _Open(asyncio.Transport):
    """A connection that nothing is sent on."""

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return

    def close(self) -> None:
        return

    def abort(self) -> None:
        return


@target(
    UpgradeFailed,
    seeds=(b"\0\0" + HEAD + b"rest", b"\0\0" + REFUSED),
    parts=(b"\r\n\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked", b"HTTP/1.1 "),
)
def upgrade_answers(data: bytes) -> None:
    """Answers of the runtime's streaming server to an upgrade."""

    async def read() -> None:
        reader = asyncio.StreamReader(limit=MAX_HEAD)
        reading = asyncio.ensure_future(read_answer(reader, _Open()))
        for part in pieces(data):
            reader.feed_data(part)
            await asyncio.sleep(0)
            if reading.done():
                break
        reader.feed_eof()
        await reading

    _LOOP.run_until_complete(read())

"""Streams and requests: HTTP/2, HTTP, SPDY, WebSockets, protobuf, queries."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import h2.config
import h2.connection

from kubeletpy.base.wire import spdy, websocket
from kubeletpy.base.wire.api_messages import Unfit
from kubeletpy.base.wire.api_objects import MEDIA_TYPE, ApiObjects, Malformed
from kubeletpy.base.wire.api_table import load_table
from kubeletpy.base.wire.http2 import BOUNDS, Exchange, ExchangeFailed
from kubeletpy.base.wire.upgrade import MAX_HEAD, UpgradeFailed, read_answer
from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.http2 import Http2Connection, Stream
from kubeletpy.kubeapi.protobuf_format import ProtobufFormat
from kubeletpy.kubeapi.transport import TransportError
from kubeletpy.probes.handlers.http_messages import MalformedResponse, ResponseReader
from kubeletpy.server.node_logs.query import (
    BadPattern,
    InvalidQuery,
    UnreadableQuery,
    check,
    journal_command,
    read_query,
)
from kubeletpy.server.streaming.link import Translation
from kubeletpy.server.streaming.options import (
    BadStreamRequest,
    Streams,
    offered_protocols,
    read_ports,
    read_streams,
)
from tests.fuzz.target import pieces, target, text
from tests.kit.messages import body, entry, field

_GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/")]
_LOOP = asyncio.new_event_loop()


class _Unread(asyncio.Transport):
    """Takes everything, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.over = False

    def write(self, data: Any) -> None:
        assert not self.over, "nothing is sent after the end"
        self.size += len(data)

    def get_write_buffer_size(self) -> int:
        return self.size

    def close(self) -> None:
        self.over = True

    def abort(self) -> None:
        self.over = True


def _server(*, more: bytes = b"") -> bytes:
    """Settings, and the answers to two requests."""
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
    client = h2.connection.H2Connection()
    client.initiate_connection()
    server.initiate_connection()
    for number in (1, 3):
        client.send_headers(number, _GET, end_stream=number == 1)
    server.receive_data(client.data_to_send())
    for number in (1, 3):
        server.send_headers(number, [(":status", "200"), ("content-length", "5")])
        server.send_data(number, b"hello", end_stream=True)
    server.ping(b"12345678")
    return b"\0\0" + server.data_to_send() + more


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


_FRAMES = (
    _frame(0, 1, 1, b"x"),
    _frame(0, 8, 3, b"\1x\0"),
    _frame(1, 4, 1, b"\x88"),
    _frame(1, 5, 3, b"\x88"),
    _frame(1, 0, 1, b"\x88"),
    _frame(1, 0x24, 1, b"\0\0\0\3\0\x88"),
    _frame(2, 0, 1, b"\0\0\0\0\0"),
    _frame(3, 0, 1, b"\0\0\0\7"),
    _frame(4, 0, 0, b"\0\3\0\0\0\1"),
    _frame(4, 0, 0, b"\0\4\0\0\0\0"),
    _frame(4, 1, 0, b""),
    _frame(5, 4, 1, b"\0\0\0\2\x82"),
    _frame(7, 0, 0, bytes(8)),
    _frame(8, 0, 3, b"\0\0\0\1"),
    _frame(9, 4, 1, b"\x88"),
    _frame(10, 0, 0, b"\0\1ax"),
)


@target(seeds=(_server(), _server(more=_FRAMES[12])), parts=_FRAMES)
def http2_answers(data: bytes) -> None:
    """Callers get nothing but TransportError, and no more is held than the bounds allow."""

    async def run() -> None:
        transport, loop = _Unread(), asyncio.get_running_loop()
        connection = Http2Connection(lambda: None)
        connection.connection_made(transport)
        # a request and one with a body
        asking = [
            asyncio.ensure_future(connection.request(_GET, body, loop.time() + 3600))
            for body in (None, b"y" * 100_000)
        ]
        await asyncio.sleep(0)
        for part in pieces(data):
            connection.data_received(part)
            await asyncio.sleep(0)
        held = sum(len(part) for each in connection._streams.values() for part in each._waiting)
        assert held <= 2 * limits.STREAM_WINDOW
        connection.connection_lost(None)
        for each in asking:
            with contextlib.suppress(TransportError):
                answer: Stream = await each
                assert 200 <= answer.status <= 599
                assert answer.content_length is None or answer.content_length >= 0
                await answer.read()
        assert connection.lost
        assert not connection.load.streams

    _LOOP.run_until_complete(run())


@target(seeds=(_server(), _server(more=_FRAMES[12])), parts=_FRAMES)
def http2_probe(data: bytes) -> None:
    """Nothing but ExchangeFailed, and no more is held or answered than the bounds allow."""
    exchange = Exchange(_GET, b"y" * 100)
    exchange.start()
    replied = 0
    try:
        for part in pieces(data):
            replied += len(exchange.feed(part))
    except ExchangeFailed:
        pass
    assert len(exchange.body) <= BOUNDS.bytes
    assert replied <= 64 * BOUNDS.frames
    assert not exchange.done or 200 <= exchange.status <= 599


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


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
KEEP = 1000


def _read(parts: list[bytes]) -> tuple[int, str | None, bytes, bool, bool]:
    reader = ResponseReader(KEEP)
    try:
        for part in parts:
            reader.feed(part)
        reader.end()
    except MalformedResponse:
        return reader.status, None, b"", False, True
    assert len(reader.body) <= KEEP
    return reader.status, reader.header("location"), bytes(reader.body), reader.done, False


@target(
    seeds=(b"\0\0" + PLAIN, b"\0\0" + CHUNKED, b"\0\0" + INTERIM * 3 + PLAIN),
    parts=(PLAIN, CHUNKED, INTERIM, b"\r\n\r\n", b"\r\n", b"\n\n", b"HTTP/1.0 301 x", b"chunked"),
)
def http_answers(data: bytes) -> None:
    """The same is read however an answer is cut into pieces."""
    parts = list(pieces(data))
    assert _read(parts) == _read([b"".join(parts)])


_OBJECTS = ApiObjects(load_table())
_FORMAT = ProtobufFormat(_OBJECTS)
_METADATA = field(1, field(1, "p") + field(8, field(1, 1700000000)) + field(11, entry("a", "b")))
_POD = body("v1", "Pod", _METADATA + field(2, field(2, field(1, "c") + field(2, "i"))))
_PARTS = (
    b"k8s\0",
    b"v1",
    b"PodList",
    b"\x0a\0",
    b"\x12\0",
    b"\x1a\0",
    b"\x0b",
    b"\x0c",
    b"\0\0\0\x05",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
)


def _event(kind: str, obj: bytes) -> bytes:
    event = field(1, kind) + field(2, field(1, obj))
    return len(event).to_bytes(4, "big") + event


@target(
    Malformed,
    Unfit,
    RecursionError,
    seeds=(
        _POD,
        body("v1", "PodList", field(1, field(2, "7")) + field(2, _METADATA)),
        body("v1", "Secret", _METADATA + field(2, entry("k", b"\xff"))),
        body("v1", "Status", field(3, "no") + field(5, field(4, field(1, "x"))) + field(6, 404)),
        body("coordination.k8s.io/v1", "Lease", field(2, field(4, field(1, 5) + field(2, 6000)))),
    ),
    parts=_PARTS,
)
def api_objects(data: bytes) -> None:
    """An object that is read, written and read again stays the same."""
    found = _OBJECTS.decode(data)
    if "items" not in found:
        written = _OBJECTS.enclose(found["apiVersion"], found["kind"], found)
        again = _OBJECTS.decode(written)
        assert json.dumps(again, sort_keys=True) == json.dumps(found, sort_keys=True)


@target(seeds=(b"\0\0" + _event("ADDED", _POD) + _event("DELETED", _POD),), parts=_PARTS)
def protobuf_watch(data: bytes) -> None:
    """The same events come however they are cut into pieces, and nothing but ApiErrors."""

    async def events(parts: list[bytes]) -> tuple[list[Any], str]:
        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                yield part

        found: list[Any] = []
        try:
            async for event in _FORMAT.events(f"{MEDIA_TYPE};stream=watch", chunks()):
                found.append(repr(event))
        except ApiError as error:
            return found, str(error)
        return found, ""

    parts = list(pieces(data))
    assert _LOOP.run_until_complete(events(parts)) == _LOOP.run_until_complete(
        events([b"".join(parts)])
    )


NODE_LOGS = b"query=kubelet&sinceTime=2024-01-02T03:04:05Z&tailLines=5&boot=-1&pattern=a.*b"


@target(
    UnreadableQuery,
    InvalidQuery,
    seeds=(NODE_LOGS, b"query=/a/b"),
    parts=(b"query=", b"&", b"%2f", b"..", b"boot=", b"pattern=", b"untilTime="),
)
def node_log_query(data: bytes) -> None:
    """A query of the node's logs; no argument of a command becomes an option."""
    found = read_query(parse_qsl(text(data), keep_blank_values=True))
    if found is not None:
        assert all(each.startswith("--") for each in journal_command(found)[1:])


@target(
    BadPattern,
    seeds=(b"(?i)a[b-c]{2,3}?|\\pL", b"[[:alpha:]]"),
    parts=(b"(?", b"{1,1000}", b"[^", b"\\x{", b"[[:", b"?P<a>"),
)
def pattern(data: bytes) -> None:
    """A regular expression of RE2."""
    check(text(data))


@target(BadStreamRequest, seeds=(b"input=1&output=1&tty=1&port=80,81",), parts=(b"port=", b"&"))
def stream_query(data: bytes) -> None:
    """The streams or ports that a client requests."""
    query = parse_qsl(text(data), keep_blank_values=True)
    offered_protocols(text(data))
    if len(data) % 2:
        read_streams(query)
    assert all(0 < port < 1 << 16 for port in read_ports(query, websocket=bool(len(data) % 3)))

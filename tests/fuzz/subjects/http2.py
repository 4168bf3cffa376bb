"""Data that servers send on HTTP/2 connections: an API server, and the server of a probe."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import h2.config
import h2.connection

from kubeletpy.base.wire.http2 import BOUNDS, Exchange, ExchangeFailed
from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.http2 import Http2Connection, Stream
from kubeletpy.kubeapi.transport import TransportError
from tests.fuzz.target import pieces, target

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

"""A client's hijacked connection as streams: it ends once, and aiohttp drops it."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from kubeletpy.base.wire import relay
from kubeletpy.base.wire.http_server import HttpServer, SentResponse
from kubeletpy.base.wire.listener import ConnectionLimiter


class TlsTransport(asyncio.Transport):
    """A TLS connection of CPython 3.11.2, whose abort() raises after a second close()."""

    def __init__(self) -> None:
        super().__init__()
        self.closes, self.lost = 0, False
        self.protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closes > 0

    def close(self) -> None:
        self.closes += 1
        self._lose()

    def abort(self) -> None:
        if self.closes > 1:
            raise AttributeError("'NoneType' object has no attribute '_abort'")
        self._lose()

    def peer_leaves(self) -> None:
        """The client ends the connection."""
        self.close()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.protocol.connection_lost(None)


@pytest.mark.parametrize("first", ["client", "agent"])
async def test_aiohttp_forgets_a_connection_whoever_ends_it(first: str) -> None:
    forgotten = asyncio.Event()
    client = TlsTransport()
    handler = SimpleNamespace(connection_lost=lambda _: forgotten.set(), set_parser=lambda _: None)
    request = cast(web.Request, SimpleNamespace(transport=client, protocol=handler))
    async with relay.streams(request, b"HTTP/1.1 101 \r\n\r\n", 1 << 16):
        if first == "client":
            client.peer_leaves()
    async with asyncio.timeout(5):
        await forgotten.wait()


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_what_a_client_sends_with_its_request_is_read(pause: float) -> None:
    """Before the connection is hijacked, aiohttp has read it."""
    got = asyncio.Future[bytes]()

    async def handle(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(pause)
        async with relay.streams(request, b"HTTP/1.1 101 \r\n\r\n", 1 << 16) as (reader, _):
            got.set_result(await reader.readexactly(12))
        return SentResponse()

    app = web.Application()
    app.router.add_get("/", handle)
    server = HttpServer(app, ConnectionLimiter(10))
    sock = socket.create_server(("127.0.0.1", 0))
    await server.start(sock)
    _, writer = await asyncio.open_connection(*sock.getsockname())
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    writer.write(head + b"early,")
    await asyncio.sleep(0.01)
    writer.write(b"later.")
    async with asyncio.timeout(5):
        assert await got == b"early,later."
    writer.close()
    await server.close()

"""The server half of an HTTP/1.1 upgrade: takes the client's connection over from aiohttp.

aiohttp handles upgrades to WebSocket only; here the bytes after the 101 are not parsed. Must never
leak the connection: it is closed when the relay ends, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from kubeletpy.base.wire.relay import FLUSH_S, Relay
from kubeletpy.base.wire.upgrade import UpgradeResponse

_ANSWER_HEADERS = frozenset(
    {
        "connection",
        "upgrade",
        "x-stream-protocol-version",
        "x-accepted-stream-protocol-versions",
        "sec-websocket-accept",
        "sec-websocket-protocol",
    }
)
"""The headers a client needs for an upgrade; no others of the upstream answer reach it."""


class TakenOver(web.StreamResponse):
    """Returned by a handler when the connection is no longer aiohttp's."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing is sent."""

    async def write_eof(self, data: Any = b"") -> None:
        """Nothing is sent."""


def is_upgrade(request: web.Request) -> bool:
    """Whether a request is for an upgrade of its connection."""
    tokens = {part.strip().lower() for part in request.headers.get("Connection", "").split(",")}
    return "upgrade" in tokens and bool(request.headers.get("Upgrade"))


async def join(request: web.Request, answer: UpgradeResponse, *, idle_timeout: float) -> TakenOver:
    """Answer the client's upgrade and relay until either side closes.

    Raises:
        ConnectionResetError: the client has already disconnected; ``answer``'s transport is closed.
    """
    client = request.transport
    if client is None or client.is_closing():
        answer.transport.abort()
        raise ConnectionResetError("the client has disconnected")
    handler = request.protocol
    lines = [f"HTTP/1.1 101 {answer.reason or 'Switching Protocols'}"]
    lines += [f"{name}: {value}" for name, value in answer.headers if _passes(name)]
    relay = Relay()
    client.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
    early = bytes(getattr(handler, "_message_tail", b""))
    try:
        await relay.run(
            client,
            answer.transport,
            idle_timeout=idle_timeout,
            near_first=early,
            far_first=answer.rest,
        )
    finally:
        # aiohttp no longer tracks the connection: without this it would stay in its records
        asyncio.get_running_loop().call_soon(handler.connection_lost, None)
    return TakenOver()


@contextlib.asynccontextmanager
async def streams(
    request: web.Request, head: bytes, limit: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Send the head of an answer; then the client's connection as streams, closed on exit.

    Args:
        limit: bytes that wait for their reader; at twice as many the client has to wait.

    Raises:
        ConnectionResetError: the client has already disconnected.
    """
    client = request.transport
    if client is None or client.is_closing():
        raise ConnectionResetError("the client has disconnected")
    handler, loop = request.protocol, asyncio.get_running_loop()
    client.write(head)
    reader = asyncio.StreamReader(limit=limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    writer = asyncio.StreamWriter(client, protocol, reader, loop)
    try:
        client.set_protocol(protocol)
        protocol.connection_made(client)
        if early := bytes(getattr(handler, "_message_tail", b"")):
            reader.feed_data(early)
        client.resume_reading()
        yield reader, writer
        if not client.is_closing():  # CPython 3.11.2 aborts no TLS connection that was closed twice
            client.close()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(FLUSH_S):
                await writer.wait_closed()
    finally:
        client.abort()
        # aiohttp no longer tracks the connection: without this it would stay in its records
        loop.call_soon(handler.connection_lost, None)


def _passes(name: str) -> bool:
    return name.lower() in _ANSWER_HEADERS

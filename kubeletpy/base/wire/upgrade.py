"""Upgrades of HTTP/1.1 connections, as a client and as a server; their bytes are relayed unread.

The client half connects, sends the request and hands over the raw connection. It reads one response
head of bounded size and nothing after it, and follows no redirect. The server half hijacks the
client's connection from aiohttp, which handles upgrades to WebSocket only.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any

from aiohttp import web

from kubeletpy.base.structs import Struct
from kubeletpy.base.wire.relay import FLUSH_S, Relay

MAX_HEAD = 64 << 10
"""Maximum bytes of a response's status line and headers."""
MAX_ERROR_BODY = 64 << 10
_CODE = re.compile("[1-5][0-9][0-9]")
HOP_HEADERS = frozenset(
    {
        "host",
        "authorization",
        "cookie",
        "proxy-authorization",
        "content-length",
        "transfer-encoding",
        "keep-alive",
        "te",
        "trailer",
        "expect",
    }
)
"""Request headers that are not for the next hop; ``Connection: Upgrade`` is."""

Headers = list[tuple[str, str]]

_END = b"\r\n\r\n"
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class UpgradeFailed(Exception):
    """The server can't be reached, or its response is invalid."""


class UpgradeResponse(Struct):
    """The response: the head, and the connection if it is an upgrade (status 101).

    Attributes:
        transport: to be closed by the caller after an upgrade; otherwise closed already.
        rest: bytes received after the head.
        body: of a response that is not an upgrade, truncated to MAX_ERROR_BODY.
    """

    status: int
    reason: str
    headers: Headers
    transport: asyncio.Transport
    rest: bytes = b""
    body: bytes = b""

    def header(self, name: str) -> str:
        """The first header of that name, or an empty string."""
        return next((value for key, value in self.headers if key.lower() == name), "")


class _HeadReader(asyncio.Protocol):
    """Collects a response's head, and the body if it is not an upgrade."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self._head_end = -1
        self._enough = 0
        """Bytes after which a response that is not an upgrade is complete, or long enough."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self._head_end < 0:
            # each byte is scanned once, however the response is split
            searched = max(len(self.data) - len(_END) + 1, 0)
            self.data += data
            self._head_end = self.data.find(_END, searched)
            if self._head_end >= 0:
                self._head_is_there()
            elif len(self.data) > MAX_HEAD:
                self._finish()
        else:
            self.data += data
        if self._head_end >= 0 and len(self.data) >= self._enough:
            self._finish()

    def _head_is_there(self) -> None:
        if self.data[9:12] == b"101":
            # what follows is not ours to read
            self.transport.pause_reading()
            self._finish()
            return
        length = _content_length(bytes(self.data[: self._head_end]))
        most = MAX_ERROR_BODY if length is None else min(length, MAX_ERROR_BODY)
        self._enough = self._head_end + len(_END) + most

    def eof_received(self) -> None:
        self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def request_upgrade(
    host: str,
    port: int,
    *,
    method: str,
    target: str,
    headers: Iterable[tuple[str, str]],
    timeout: float,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
) -> UpgradeResponse:
    """Request an upgrade; after one the caller owns the answer's transport and closes it.

    Args:
        target: path and query, as sent on the wire.
        server_name: the name that the certificate must match; ``host`` if empty.

    Raises:
        UpgradeFailed: no connection, no answer within ``timeout`` seconds, or not HTTP/1.1.
    """
    loop = asyncio.get_running_loop()
    head = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if any("\r" in line or "\n" in line for line in head) or " " in target:
        raise UpgradeFailed("the request has a line break in its head")
    try:
        async with asyncio.timeout(timeout):
            transport, reader = await loop.create_connection(
                _HeadReader,
                host,
                port,
                ssl=tls,
                server_hostname=(server_name or host) if tls is not None else None,
            )
            try:
                transport.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1", "replace"))
                await reader.done
                answer = _parse_answer(reader)
                if answer.status != 101:
                    transport.abort()
                return answer
            except BaseException:
                transport.abort()
                raise
    except (OSError, TimeoutError) as error:
        why = str(error) or "no answer in time"
        where = f"[{host}]" if ":" in host else host
        raise UpgradeFailed(f"{where}:{port}: {why}") from error


def _parse_answer(reader: _HeadReader) -> UpgradeResponse:
    head, found, rest = bytes(reader.data).partition(_END)
    lines = head.decode("latin-1").split("\r\n")
    version, _, status = lines[0].partition(" ")
    code, _, reason = status.partition(" ")
    if not found or not version.startswith("HTTP/1.") or not _CODE.fullmatch(code):
        raise UpgradeFailed("the answer is not HTTP/1.1")
    headers: Headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.append((name.strip(), value.strip()))
    answer = UpgradeResponse(int(code), reason, headers, reader.transport)
    if answer.status == 101:
        answer.rest = rest
    else:
        answer.body = _unchunked(rest) if "chunked" in answer.header("transfer-encoding") else rest
    return answer


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return None


def _unchunked(data: bytes) -> bytes:
    """The text of a chunked body, as far as received."""
    text, at = bytearray(), 0
    while (size := _CHUNK_SIZE.match(data, at)) is not None and (length := int(size[1], 16)):
        at = size.end()
        text += data[at : at + length]
        at += length + 2
    return bytes(text)


# The server half. A hijacked connection never leaks: it is closed when its relay ends, however that
# ends.

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


class HijackedResponse(web.StreamResponse):
    """Returned by a handler that has hijacked the connection: aiohttp sends nothing."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send no head; the handler has sent it."""

    async def write_eof(self, data: Any = b"") -> None:
        """Send no end of a body; the connection is not aiohttp's."""


def is_upgrade(request: web.Request) -> bool:
    """Whether a request is for an upgrade of its connection."""
    tokens = {part.strip().lower() for part in request.headers.get("Connection", "").split(",")}
    return "upgrade" in tokens and bool(request.headers.get("Upgrade"))


async def join(
    request: web.Request, answer: UpgradeResponse, *, idle_timeout: float
) -> HijackedResponse:
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
    return HijackedResponse()


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

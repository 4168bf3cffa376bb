"""A client's WebSocket on a connection taken over from aiohttp.

aiohttp's own reader parses all that has arrived in one turn of the loop, answers pings without a
pause, and accepts frames that are not masked. Here each frame counts as work of the stream
(:mod:`kubeletpy.base.wire.relay`).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging

from aiohttp import web

from kubeletpy.base.wire.relay import StreamWork
from kubeletpy.base.wire.websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    CloseCode,
    ProtocolError,
    WebSocketDecoder,
    close_frame,
    encoded,
)

log = logging.getLogger(__name__)

MAX_MESSAGE = 4 << 20
"""Maximum bytes of a client's message."""
READ = 64 << 10
CLOSE_S = 5.0
"""How long the client may take to answer the close of a stream."""
_VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def handshake(request: web.Request, protocol: str) -> bytes:
    """The head that accepts a client's handshake, with a subprotocol that it offers.

    Raises:
        web.HTTPBadRequest: the handshake is not one of RFC 6455.
    """
    version = request.headers.get("Sec-WebSocket-Version", "")
    if version != _VERSION:
        raise web.HTTPBadRequest(
            text=f"Sec-WebSocket-Version must be {_VERSION}\n",
            headers={"Sec-WebSocket-Version": _VERSION},
        )
    key = request.headers.get("Sec-WebSocket-Key", "")
    try:
        nonce = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        nonce = b""
    if request.method != "GET" or len(nonce) != 16:
        raise web.HTTPBadRequest(text="not a WebSocket handshake\n")
    accepted = base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest())
    lines = (
        b"HTTP/1.1 101 Switching Protocols",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Accept: " + accepted,
        b"Sec-WebSocket-Protocol: " + protocol.encode(),
    )
    return b"\r\n".join((*lines, b"", b""))


class ClientSocket:
    """Messages of a client and to it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = WebSocketDecoder(MAX_MESSAGE)
        self._work = StreamWork()
        self._closing = False
        """Whether a close frame has been sent."""
        self._over = False
        """Whether nothing more is read."""

    async def receive(self) -> bytes | None:
        """The next binary message; None once the client has closed. Raises ConnectionError.

        Pings are answered, texts are skipped. A client that breaks the protocol gets the matching
        close code.
        """
        try:
            while not self._over:
                message = self._decoder.next_message()
                if message is None:
                    piece = await self._reader.read(READ)
                    self._over = not piece
                    self._decoder.feed(piece)
                    continue
                await self._work.did(len(message.data))
                if message.kind == BINARY:
                    return message.data
                if message.kind == PING:
                    await self._write(encoded(PONG, message.data))
                elif message.kind == CLOSE:
                    self._end(int.from_bytes(message.data, "big") or CloseCode.NORMAL)
        except ProtocolError as error:
            log.debug("a client broke the WebSocket protocol", extra={"why": str(error)})
            self._end(error.code)
        return None

    async def send(self, *parts: bytes) -> None:
        """Send one binary message. Raises ConnectionError."""
        await self._write(encoded(BINARY, *parts))

    async def close(self) -> None:
        """Close, and wait a moment for the client to have read everything."""
        self._send_close(CloseCode.NORMAL)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_S):
                await self._writer.drain()
                while await self.receive() is not None:
                    pass

    async def _write(self, frame: bytes) -> None:
        if not self._closing:
            self._writer.write(frame)
            await self._writer.drain()

    def _end(self, code: int) -> None:
        self._over = True
        self._send_close(code)

    def _send_close(self, code: int) -> None:
        if not self._closing:
            self._closing = True
            self._writer.write(close_frame(code))

"""Connects a client's upgrade to the runtime's streaming server, relayed or translated.

The URL comes from the runtime and holds a one-time token: it must never be logged or shown. A
client's credentials are not passed on.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import background
from kubeletpy.base.wire import relay, spdy, upgrade, websocket
from kubeletpy.base.wire.http_server import SentResponse
from kubeletpy.base.wire.relay import Leaving, StreamWork
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.server.streaming import options

log = logging.getLogger(__name__)

# A client's WebSocket on a connection hijacked from aiohttp.

MAX_MESSAGE = 4 << 20
"""Maximum bytes of a client's message."""
READ = 64 << 10
CLOSE_S = 5.0
"""Seconds that the client may take to answer the close of a stream."""
_VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def handshake(request: web.Request, protocol: str) -> bytes:
    """Return the head that accepts a client's handshake, with a subprotocol that it offers or none.

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
        *((b"Sec-WebSocket-Protocol: " + protocol.encode(),) if protocol else ()),
    )
    return b"\r\n".join((*lines, b"", b""))


class ClientSocket(Component):
    """A client's WebSocket on a connection taken over from aiohttp.

    The reader of aiohttp parses all that has arrived in one turn of the loop, answers pings without
    a pause, and accepts frames that are not masked. Here each frame counts as work of the stream
    (:mod:`kubeletpy.base.wire.relay`).
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __post_init__(self) -> None:
        self._decoder = websocket.WebSocketDecoder(MAX_MESSAGE)
        self._work = StreamWork()
        self._closing = False
        """Whether a close frame has been sent."""
        self._over = False
        """Whether nothing more is read."""

    async def receive(self) -> bytes | None:
        """Return the next message; None once the client has closed. Raises ConnectionError.

        Some clients send what a person types as texts. Pings are answered. A client that breaks
        the protocol gets the matching close code.
        """
        try:
            while not self._over:
                message = self._decoder.next_message()
                if message is None:
                    piece = await self.reader.read(READ)
                    self._over = not piece
                    self._decoder.feed(piece)
                    continue
                await self._work.did(len(message.data))
                if message.kind in (websocket.BINARY, websocket.TEXT):
                    return message.data
                if message.kind == websocket.PING:
                    await self._write(websocket.encoded(websocket.PONG, message.data))
                elif message.kind == websocket.CLOSE:
                    self._end(int.from_bytes(message.data, "big") or websocket.CloseCode.NORMAL)
        except websocket.ProtocolError as error:
            log.debug("a client broke the WebSocket protocol", extra={"why": str(error)})
            self._end(error.code)
        return None

    async def send(self, *parts: bytes) -> None:
        """Send one binary message. Raises ConnectionError."""
        await self._write(websocket.encoded(websocket.BINARY, *parts))

    async def close(self) -> None:
        """Send a close, and wait a moment until the client has read everything."""
        self._send_close(websocket.CloseCode.NORMAL)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(CLOSE_S):
                await self.writer.drain()
                while await self.receive() is not None:
                    pass

    async def _write(self, frame: bytes) -> None:
        if not self._closing:
            self.writer.write(frame)
            await self.writer.drain()

    def _end(self, code: int) -> None:
        self._over = True
        self._send_close(code)

    def _send_close(self, code: int) -> None:
        if not self._closing:
            self._closing = True
            self.writer.write(websocket.close_frame(code))


# Translation between a client's v5 WebSocket and the runtime's SPDY. Each message begins with its
# channel: 0 to 4 are stdin, stdout, stderr, error and resize; 255 means that the channel in the
# next byte is closed. Source: KEP-4006; docs/reference/server.csv: streaming.

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE_CHANNEL = 0, 1, 2, 3, 4, 255


def now() -> float:
    """The time of the event loop, in seconds."""
    return asyncio.get_running_loop().time()


def channel_names(streams: options.Streams) -> dict[int, str]:
    """The channels of a process that a client has requested, with their names in SPDY."""
    names = {ERROR: "error"}
    if streams.stdin:
        names[STDIN] = "stdin"
    if streams.stdout:
        names[STDOUT] = "stdout"
    if streams.stderr:
        names[STDERR] = "stderr"
    if streams.tty:
        names[RESIZE] = "resize"
    return names


@dataclass(eq=False)
class _Carrier(ABC):
    """Carries data between a client's WebSocket and the runtime's connection."""

    _socket: ClientSocket
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    moved_at: float = field(default_factory=now, init=False)
    """Event-loop time in seconds at which data was last carried."""
    _outward: StreamWork = field(default_factory=StreamWork, init=False)
    """Work done for the runtime's frames; the client's are counted by its socket."""

    async def carry(self) -> None:
        """Carry data until either side has ended."""
        async with asyncio.TaskGroup() as group:
            out = group.create_task(self._to_client())
            inward = group.create_task(self._to_runtime())
            await asyncio.wait({out, inward}, return_when=asyncio.FIRST_COMPLETED)
            out.cancel()
            inward.cancel()

    @abstractmethod
    async def _to_client(self) -> None: ...

    @abstractmethod
    async def _to_runtime(self) -> None: ...


@dataclass(eq=False)
class Translation(_Carrier):
    """An exec or attach: the streams of a process."""

    _numbers: dict[int, int] = field(default_factory=dict, init=False)
    _decoder: spdy.SpdyDecoder = field(default_factory=spdy.SpdyDecoder, init=False)

    async def run(self, streams: options.Streams) -> None:
        """Open the streams and carry them until the process ends or the client disconnects."""
        self._open(streams)
        await self._writer.drain()
        await self.carry()

    def _open(self, streams: options.Streams) -> None:
        encoder = spdy.Encoder()
        for channel, name in channel_names(streams).items():
            number, frame = encoder.open_stream({"streamtype": name})
            self._numbers[channel] = number
            self._writer.write(frame)

    async def _to_client(self) -> None:
        outward = [c for c in (STDOUT, STDERR, ERROR) if c in self._numbers]
        channels = {self._numbers[channel]: channel for channel in outward}
        open_ones = set(channels)
        while open_ones:
            piece = await self._reader.read(READ)
            if not piece:
                return
            self.moved_at = now()
            for frame in self._decoder.feed(piece):
                await self._outward.did(len(frame.data))
                if frame.kind == spdy.PING:
                    self._writer.write(spdy.ping_answer(frame.stream))
                channel = channels.get(frame.stream)
                if frame.kind == spdy.DATA and frame.data and channel is not None:
                    await self._socket.send(bytes((channel,)), frame.data)
                if frame.is_last:
                    open_ones.discard(frame.stream)

    async def _to_runtime(self) -> None:
        while (message := await self._socket.receive()) is not None:
            self.moved_at = now()
            if not message:
                continue
            channel, content = message[0], message[1:]
            if channel == CLOSE_CHANNEL:
                self._send(content[0] if content else CLOSE_CHANNEL, b"", last=True)
            elif channel in (STDIN, RESIZE) and content:
                self._send(channel, content)
            await self._writer.drain()

    def _send(self, channel: int, content: bytes, *, last: bool = False) -> None:
        number = self._numbers.get(channel)
        if number is None or channel not in (STDIN, RESIZE):
            return
        if last:
            del self._numbers[channel]
        self._writer.write(spdy.data(number, content, last=last))


@dataclass(eq=False)
class Tunnel(_Carrier):
    """A port-forward: the WebSocket messages carry SPDY bytes."""

    async def _to_client(self) -> None:
        while piece := await self._reader.read(READ):
            self.moved_at = now()
            await self._outward.did(len(piece))
            await self._socket.send(piece)

    async def _to_runtime(self) -> None:
        while (message := await self._socket.receive()) is not None:
            self.moved_at = now()
            self._writer.write(message)
            await self._writer.drain()


CONNECT_S = 30.0
CLIENT_BUFFER = 64 << 10
"""Bytes of a client that wait to be read; at twice as many the client has to wait."""
RUNTIME_BUFFER = 256 << 10
"""The same of a runtime."""
_EXEC_PROTOCOL = "v4.channel.k8s.io"
_FORWARD_PROTOCOL = "portforward.k8s.io"


class RuntimeLink(Component):
    """Connects clients to the runtime; ``idle_timeout`` in seconds, 0 for none."""

    idle_timeout: float
    metrics: HttpMetrics

    async def join(
        self,
        request: web.Request,
        url: str,
        subresource: str,
        streams: options.Streams | None = None,
    ) -> web.StreamResponse:
        """Connect a client to the runtime's URL until either closes; no ``streams``: port-forward.

        ``subresource`` of pods, for the metrics: exec, attach or portforward.
        """
        protocols = options.offered_protocols(request.headers.get("Sec-WebSocket-Protocol", ""))
        route = options.stream_route(request.headers.get("Upgrade", ""), protocols)
        try:
            if route is options.StreamRoute.RAW:
                answer = await self._request_upgrade(
                    url, request.method, _forwarded_headers(request)
                )
                if answer.status != 101:
                    return _refusal(answer)
                return await relay.join(request, answer, idle_timeout=self.idle_timeout)
            if (route is options.StreamRoute.TUNNELLED) != (streams is None):
                return web.Response(status=400, text="this subprotocol is not for this\n")
            accepted = handshake(request, options.TUNNEL if streams is None else options.V5)
            self.metrics.websocket_streams.labels(subresource).inc()
            protocol = _FORWARD_PROTOCOL if streams is None else _EXEC_PROTOCOL
            headers = [
                ("Connection", "Upgrade"),
                ("Upgrade", "SPDY/3.1"),
                ("X-Stream-Protocol-Version", protocol),
            ]
            answer = await self._request_upgrade(url, "POST", headers)
        except upgrade.UpgradeFailed as error:
            why = {"why": str(error)}
            log.warning("the runtime's streaming server can't be used", extra=why)
            return web.Response(status=502, text="the runtime's streaming server failed\n")
        if answer.status != 101:
            return _refusal(answer)
        return await self._carry(request, accepted, answer, streams)

    async def _request_upgrade(
        self, url: str, method: str, headers: upgrade.Headers
    ) -> upgrade.UpgradeResponse:
        parts = urlsplit(url, scheme="http")  # cri-dockerd's URLs have none
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise upgrade.UpgradeFailed("the runtime gave no URL of a streaming server")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return await upgrade.request_upgrade(
            parts.hostname,
            port,
            method=method,
            target=target,
            headers=[("Host", parts.netloc.rpartition("@")[2]), *headers],
            timeout=CONNECT_S,
            tls=tls,
        )

    async def _carry(
        self,
        request: web.Request,
        accepted: bytes,
        answer: upgrade.UpgradeResponse,
        streams: options.Streams | None,
    ) -> web.StreamResponse:
        async with (
            _streams_of(answer) as (reader, writer),
            relay.streams(request, accepted, CLIENT_BUFFER) as client,
        ):
            socket = ClientSocket(*client)
            try:
                if streams is None:
                    tunnel = Tunnel(socket, reader, writer)
                    await until_idle(tunnel, self.idle_timeout, tunnel.carry)
                else:
                    exec_ = Translation(socket, reader, writer)
                    await until_idle(exec_, self.idle_timeout, lambda: exec_.run(streams))
            except* (ConnectionError, ValueError) as broken:
                log.debug("a stream broke", extra={"why": str(broken.exceptions[0])})
            await socket.close()
        return SentResponse()


class _Moving(Protocol):
    moved_at: float


async def until_idle(
    carrier: _Moving, idle_timeout: float, run: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run until the end, or until ``carrier`` has not moved for so many seconds; 0: no limit."""
    if not idle_timeout:
        await run()
        return
    async with background(run()) as running:
        while not running.done():
            left = carrier.moved_at + idle_timeout - now()
            if left <= 0:
                return
            await asyncio.wait({running}, timeout=left)
        await running


@asynccontextmanager
async def _streams_of(
    answer: upgrade.UpgradeResponse,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the connection of an answer as asyncio streams; it is closed on exit."""
    transport = answer.transport
    reader, writer = relay.as_streams(transport, answer.rest, RUNTIME_BUFFER)
    try:
        yield reader, writer
    finally:
        if not transport.is_closing():
            Leaving(transport, lost=writer.close)  # a writer without a reference closes at once


def _forwarded_headers(request: web.Request) -> upgrade.Headers:
    """Return a client's headers for the runtime: no credentials, no hop-by-hop headers."""
    return [
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in upgrade.HOP_HEADERS
    ]


def _refusal(answer: upgrade.UpgradeResponse) -> web.Response:
    text = answer.body.decode("utf-8", "replace")
    return web.Response(status=answer.status if answer.status >= 400 else 502, text=text)

"""Connects clients to the sessions of a runtime inside this program, over SPDY or a WebSocket.

A client's bytes are held up to a bound until the session reads them; then the client waits. A
session ends with its client's connection. Source: docs/reference/server.csv: streaming.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp import web

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import background, cancel_tasks, until_one_ends
from kubeletpy.base.wire import relay, spdy
from kubeletpy.base.wire.http_server import SentResponse
from kubeletpy.remote import streams as remote
from kubeletpy.remote.errors import CRIError
from kubeletpy.server.streaming import link, options

log = logging.getLogger(__name__)

CREATION_S = 30.0
"""Seconds in which a client has to open the streams of a process."""
MAX_FORWARDS = 128
"""Connections of a client to ports at once; further ones are refused."""
MAX_ID = 64
"""Characters of the id by which a client names a connection."""
MAX_RESIZE = 256
"""Bytes of a terminal's size."""
V4 = "v4.channel.k8s.io"
V1 = "channel.k8s.io"
"""The same channels, but the error channel has a text. A client without subprotocols gets it."""
FORWARD = "portforward.k8s.io"
FAILED = "the runtime failed; the log of its program has the error"


class RawSocket(Component):
    """A client's connection after its upgrade to SPDY, with the methods of a ClientSocket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def receive(self) -> bytes | None:
        """Return the next bytes; None once the client has closed. Raises ConnectionError."""
        return await self.reader.read(link.READ) or None

    async def send(self, *parts: bytes) -> None:
        """Send bytes. Raises ConnectionError."""
        self.writer.writelines(parts)
        await self.writer.drain()

    async def close(self) -> None:
        """Wait a moment until the client has read everything and closes."""
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(link.CLOSE_S):
                while await self.receive() is not None:
                    pass


class _Client(Component):
    """A client's connection, and the event loop's time at which it last carried something."""

    socket: link.ClientSocket | RawSocket

    def __post_init__(self) -> None:
        self.moved_at = link.now()

    async def receive(self) -> bytes | None:
        message = await self.socket.receive()
        self.moved_at = link.now()
        return message

    async def send(self, *parts: bytes) -> None:
        await self.socket.send(*parts)
        self.moved_at = link.now()


class _Spdy(Component):
    """A client that opens streams of SPDY."""

    client: _Client

    def __post_init__(self) -> None:
        self._encoder = spdy.Encoder()

    async def frames(self) -> AsyncIterator[tuple[spdy.Frame, dict[str, str]]]:
        """Each frame of a stream, with the headers of a new one. Raises SpdyError."""
        decoder, headers, work = spdy.SpdyDecoder(), spdy.HeaderDecoder(), relay.StreamWork()
        newest = 0
        while (data := await self.client.receive()) is not None:
            for frame in decoder.feed(data):
                if frame.kind == spdy.SYN_STREAM:
                    await work.did(spdy.MAX_CONTROL)
                    if frame.stream <= newest or not frame.stream & 1:
                        raise spdy.SpdyError("the number of a new stream is not a client's next")
                    newest = frame.stream
                    yield frame, headers.headers(frame)
                    continue
                await work.did(len(frame.data))
                if frame.kind == spdy.PING:
                    await self.client.send(spdy.ping_answer(frame.stream))
                elif frame.kind in (spdy.DATA, spdy.RST_STREAM):
                    yield frame, {}

    async def accept(self, number: int) -> None:
        await self.client.send(self._encoder.accept_stream(number))

    async def refuse(self, number: int) -> None:
        await self.client.send(spdy.refused_stream(number))

    async def send(self, number: int, data: bytes, *, last: bool = False) -> None:
        await self.client.send(spdy.data(number, data, last=last))


# An exec or attach. Its channels are messages of a WebSocket or streams of SPDY.


class _Input(Component):
    """Takes the bytes that a client sends to a process."""

    process: remote.ProcessStreams
    stdin: remote.StreamInput

    def __post_init__(self) -> None:
        self._sizes = b""
        self.complete = asyncio.Event()
        """Set once the client has opened all channels."""

    async def feed(self, channel: int, data: bytes, *, last: bool = False) -> None:
        if channel == link.STDIN:
            await self.stdin.feed(data, last=last)
        elif channel == link.RESIZE:
            *sizes, rest = (self._sizes + data).split(b"}")
            self._sizes = rest[:MAX_RESIZE]
            if sizes and (size := _terminal_size(sizes[-1] + b"}")) is not None:
                self.process.resize(size)


class _SocketChannels(Component):
    """Each message of a WebSocket begins with its channel."""

    client: _Client
    requested: options.Streams
    has_status: bool

    async def carry(self, given: _Input) -> None:
        """Pass on what the client sends, until it disconnects."""
        await self.send(link.STDOUT, b"")  # some clients wait for a first message
        given.complete.set()
        while (message := await self.client.receive()) is not None:
            if message[:1] == bytes((link.CLOSE_CHANNEL,)):
                if len(message) > 1:
                    await given.feed(message[1], b"", last=True)
            elif message:
                await given.feed(message[0], message[1:])

    async def send(self, channel: int, data: bytes) -> None:
        """Send bytes on a channel, if the client has requested it."""
        if self.requested.stdout if channel == link.STDOUT else self.requested.stderr:
            await self.client.send(bytes((channel,)), data)

    async def finish(self, status: dict[str, Any]) -> None:
        """End all channels, with a Status on the error channel, or the text of a failure."""
        report = json.dumps(status) if self.has_status else status.get("message", "")
        if report:
            await self.client.send(bytes((link.ERROR,)), report.encode())


class _SpdyChannels(Component):
    """Each channel is a stream of SPDY, which the client opens."""

    client: _Client
    requested: options.Streams

    def __post_init__(self) -> None:
        self._spdy = _Spdy(self.client)
        self._numbers: dict[int, int] = {}

    async def carry(self, given: _Input) -> None:
        """Pass on what the client sends, until it disconnects. Raises SpdyError."""
        desired = {name: each for each, name in link.channel_names(self.requested).items()}
        channels: dict[int, int] = {}
        async for frame, headers in self._spdy.frames():
            number = frame.stream
            if frame.kind == spdy.SYN_STREAM:
                channel = desired.pop(headers.get("streamtype", "").lower(), None)
                if channel is None:
                    await self._spdy.refuse(number)
                    continue
                channels[number], self._numbers[channel] = channel, number
                await self._spdy.accept(number)
                if not desired:
                    given.complete.set()
            elif number in channels:
                data = frame.data if frame.kind == spdy.DATA else b""
                await given.feed(channels[number], data, last=frame.is_last)

    async def send(self, channel: int, data: bytes, *, last: bool = False) -> None:
        """Send bytes on a channel, if the client has requested it."""
        if (number := self._numbers.get(channel)) is not None:
            await self._spdy.send(number, data, last=last)

    async def finish(self, status: dict[str, Any]) -> None:
        """End all channels, with a Status on the error channel."""
        await self.send(link.STDOUT, b"", last=True)
        await self.send(link.STDERR, b"", last=True)
        await self.send(link.ERROR, json.dumps(status).encode(), last=True)


async def _serve_process(
    channels: _SocketChannels | _SpdyChannels, session: remote.ProcessSession
) -> None:
    """Run a process until it ends or the client disconnects."""
    out, err = (
        remote.StreamOutput(partial(channels.send, each)) for each in (link.STDOUT, link.STDERR)
    )
    stdin, tty = remote.StreamInput(), session.tty
    process = remote.ProcessStreams(stdin.reader, out, out if tty else err, tty)
    if not channels.requested.stdin:
        await stdin.feed(b"", last=True)
    given = _Input(process, stdin)
    async with background(_until_broken(channels.carry(given))) as client:
        async with asyncio.timeout(CREATION_S), background(given.complete.wait()) as complete:
            await until_one_ends(complete, client)
        if client.done():
            return
        async with background(_status(session.run(process))) as running:
            await until_one_ends(running, client)
            if running.done():
                await channels.finish(running.result())


def _terminal_size(text: bytes) -> tuple[int, int] | None:
    try:
        found = json.loads(text)
        width, height = int(found["Width"]), int(found["Height"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    good = 0 < width < 1 << 16 and 0 < height < 1 << 16
    return (width, height) if good else None


async def _status(running: Awaitable[int]) -> dict[str, Any]:
    """The Status of a process that has ended."""
    try:
        code = await running
    except Exception as error:  # noqa: BLE001 - the boundary to a program's own runtime
        failure = {"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500}
        return failure | {"message": _text(error)}
    if not code:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _text(error: Exception) -> str:
    """The text that a client gets of an error in the runtime."""
    if isinstance(error, CRIError | OSError):
        return str(error)
    log.error("a session of the runtime failed", exc_info=error)
    return FAILED


async def _until_broken(carry: Coroutine[Any, Any, None]) -> None:
    """Carry a client's bytes until it disconnects or breaks the protocol."""
    try:
        await carry
    except (ConnectionError, ValueError) as error:
        log.debug("a stream broke", extra={"why": str(error)})


# A port-forward. A WebSocket has a connection for each port of the request; over SPDY the client
# opens two streams for each connection, one for data and one for an error.


async def _connect(
    session: remote.ForwardSession,
    port: int,
    given: remote.StreamInput,
    output: remote.StreamOutput,
) -> bytes:
    """Carry a connection to its end; returns the text of an error, or nothing."""
    try:
        await session.connect(port, given.reader, output)
    except Exception as error:  # noqa: BLE001 - the boundary to a program's own runtime
        return f"error forwarding port {port}: {_text(error)}".encode()
    return b""


async def _serve_socket_forwards(client: _Client, session: remote.ForwardSession) -> None:
    """Serve the ports of a WebSocket: each has a channel for data, and the next for an error."""
    inputs = [remote.StreamInput() for _ in session.ports]

    async def carry() -> None:
        while (message := await client.receive()) is not None:
            if message and not message[0] & 1 and message[0] // 2 < len(inputs):
                await inputs[message[0] // 2].feed(message[1:])

    async def run(index: int, port: int) -> None:
        data, error = bytes((2 * index,)), bytes((2 * index + 1,))
        await client.send(data, port.to_bytes(2, "little"))
        await client.send(error, port.to_bytes(2, "little"))
        output = remote.StreamOutput(partial(client.send, data))
        if text := await _connect(session, port, inputs[index], output):
            await client.send(error, text)

    runs = [asyncio.create_task(_until_broken(run(*each))) for each in enumerate(session.ports)]
    try:
        async with (
            background(_until_broken(carry())) as carried,
            background(asyncio.wait(runs)) as ended,
        ):
            await until_one_ends(carried, ended)
    finally:
        await cancel_tasks(runs)


class _SpdyForwards(Component):
    """The connections that a client opens over SPDY."""

    session: remote.ForwardSession
    spdy: _Spdy

    def __post_init__(self) -> None:
        self._halves: dict[str, dict[str, int]] = {}
        """Streams of connections of which the other stream is missing, by kind."""
        self._inputs: dict[int, remote.StreamInput] = {}
        self._runs: dict[int, asyncio.Task[None]] = {}
        """Connections by the number of their data stream."""

    async def serve(self) -> None:
        """Serve connections until the client disconnects. Raises SpdyError."""
        try:
            async for frame, headers in self.spdy.frames():
                number = frame.stream
                if frame.kind == spdy.SYN_STREAM:
                    await self._open(number, headers)
                elif frame.kind == spdy.RST_STREAM:
                    await cancel_tasks((self._runs.get(number),))
                    self._forget(number)
                elif number in self._inputs:
                    await self._inputs[number].feed(frame.data, last=frame.is_last)
        finally:
            await cancel_tasks(self._runs.values())

    async def _open(self, number: int, headers: dict[str, str]) -> None:
        kind, name = headers.get("streamtype", "").lower(), headers.get("requestid", "")
        half = self._halves.get(name, {})
        try:
            (port,) = options.read_ports([("port", headers.get("port", ""))], websocket=True)
        except ValueError:
            port = 0
        full = len(self._runs) + len(self._halves) >= MAX_FORWARDS and not half
        if kind not in ("data", "error") or kind in half or not port or full or len(name) > MAX_ID:
            await self.spdy.refuse(number)
            return
        if kind == "data":
            self._inputs[number] = remote.StreamInput()
        await self.spdy.accept(number)
        half[kind] = number
        self._halves[name] = half
        if len(half) == 2:
            del self._halves[name]
            data = half["data"]
            run = asyncio.create_task(_until_broken(self._run(port, data, half["error"])))
            self._runs[data] = run
            run.add_done_callback(lambda _: self._forget(data))

    async def _run(self, port: int, data: int, error: int) -> None:
        output = remote.StreamOutput(partial(self.spdy.send, data))
        text = await _connect(self.session, port, self._inputs[data], output)
        await self.spdy.send(error, text, last=True)
        await self.spdy.send(data, b"", last=True)

    def _forget(self, number: int) -> None:
        """Forget a connection, or a half of one."""
        self._runs.pop(number, None)
        self._inputs.pop(number, None)
        for name in [each for each, half in self._halves.items() if number in half.values()]:
            del self._halves[name]


# The upgrade of a client's connection.


async def join(
    request: web.Request,
    session: remote.ProcessSession | remote.ForwardSession,
    streams: options.Streams | None,
    subresource: str,
    settings: link.RuntimeLink,
) -> web.StreamResponse:
    """Connect a client to a session until either ends; no ``streams``: port-forward."""
    upgrade = request.headers.get("Upgrade", "").lower()
    over_websocket = upgrade == "websocket"
    offered = options.offered_protocols(
        request.headers.get("Sec-WebSocket-Protocol", "")
        if over_websocket
        else ",".join(request.headers.getall("X-Stream-Protocol-Version", ()))
    )
    if over_websocket:
        served = [options.TUNNEL if streams is None else options.V5, V4, V1]
    else:
        served = [V4 if streams is not None else FORWARD]
    protocol = next((each for each in served if each in offered), None)
    if over_websocket and not offered:
        protocol = ""
    if not over_websocket and upgrade != "spdy/3.1":
        return web.Response(status=400, text="only SPDY/3.1 and websocket are served here\n")
    if protocol is None:
        text = f"no protocol of the client is served here: {', '.join(served)}\n"
        return web.Response(status=400 if over_websocket else 403, text=text)
    if over_websocket:
        head = link.handshake(request, protocol)
        settings.metrics.websocket_streams.labels(subresource).inc()
    else:
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            f"X-Stream-Protocol-Version: {protocol}\r\n\r\n"
        ).encode()
    async with relay.streams(request, head, link.CLIENT_BUFFER) as connection:
        socket = (link.ClientSocket if over_websocket else RawSocket)(*connection)
        client = _Client(socket)

        async def serve() -> None:
            if isinstance(session, remote.ForwardSession):
                if over_websocket and protocol != options.TUNNEL:
                    await _serve_socket_forwards(client, session)
                else:
                    await _SpdyForwards(session, _Spdy(client)).serve()
            elif streams is not None and over_websocket:
                has_status = protocol in (V4, options.V5)
                await _serve_process(_SocketChannels(client, streams, has_status), session)
            elif streams is not None:
                await _serve_process(_SpdyChannels(client, streams), session)

        try:
            await link.until_idle(client, settings.idle_timeout, serve)
        except (ConnectionError, ValueError, TimeoutError) as error:
            log.debug("a stream broke", extra={"why": str(error)})
        await socket.close()
    return SentResponse()

"""An HTTP/2 server for tests: each request is a call of a handler, which answers as it likes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings


@dataclass
class Exchange:
    """One request, with the means to answer it."""

    peer: Peer
    number: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def method(self) -> str:
        return self.headers[":method"]

    @property
    def path(self) -> str:
        return self.headers[":path"]

    def head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send the response's head."""
        supplied = [(":status", str(status)), *(headers or {}).items()]
        self.peer.h2.send_headers(self.number, supplied)
        self.peer.flush()

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Send a part of the body, as far as the client takes it."""
        while data or last:
            window = self.peer.h2.local_flow_control_window(self.number)
            size = min(window, self.peer.h2.max_outbound_frame_size, len(data))
            if data and not size:
                await self.peer.window_changed()
                continue
            part, data = data[:size], data[size:]
            ending = last and not data
            self.peer.h2.send_data(self.number, part, end_stream=ending)
            self.peer.flush()
            if ending:
                return

    def reset(self, code: h2.errors.ErrorCodes) -> None:
        """Refuse it, or break it off."""
        self.peer.h2.reset_stream(self.number, code)
        self.peer.flush()


Handler = Callable[[Exchange], Awaitable[None]]


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        )
        self.transport: asyncio.Transport | None = None
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._receiving: dict[int, Exchange] = {}
        self._windows = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.server.peers.append(self)
        self.h2.local_settings = h2.settings.Settings(
            client=False, initial_values=dict(self.server.settings)
        )
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            self._handle(event)
        self.flush()

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived(stream_id=int(number), headers=headers):
                pairs = cast("list[tuple[str, str]]", headers)
                self._receiving[number] = Exchange(self, number, dict(pairs))
            case h2.events.DataReceived(stream_id=int(number), data=bytes(data)):
                self._receiving[number].body += data
                size = event.flow_controlled_length or 0
                self.h2.acknowledge_received_data(size, number)
            case h2.events.StreamEnded(stream_id=int(number)):
                exchange = self._receiving.pop(number)
                task = asyncio.ensure_future(self._answer(exchange))
                self.tasks[number] = task
                task.add_done_callback(lambda _: self.tasks.pop(number, None))
            case h2.events.StreamReset(stream_id=int(number)):
                self._receiving.pop(number, None)
                self.server.resets.append((number, event.error_code))
                if (task_ := self.tasks.get(number)) is not None:
                    task_.cancel()
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                self._windows.set()
                self._windows = asyncio.Event()

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self.server.handler(exchange)
        except (h2.exceptions.ProtocolError, ConnectionError):
            self.h2.data_to_send()  # the stream or the connection has ended meanwhile

    async def window_changed(self) -> None:
        await self._windows.wait()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data and self.transport is not None:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.peers.remove(self)
        for task in list(self.tasks.values()):
            task.cancel()


@dataclass
class Server:
    """The state that the connections share.

    Attributes:
        accepted: connections so far; ``peers`` are those that are open.
        resets: streams that clients have broken off, with the reason.
    """

    handler: Handler
    settings: Mapping[h2.settings.SettingCodes, int] = field(default_factory=dict)
    url: str = ""
    port: int = 0
    accepted: int = 0
    peers: list[Peer] = field(default_factory=list)
    resets: list[tuple[int, object]] = field(default_factory=list)

    def peer(self) -> Peer:
        self.accepted += 1
        return Peer(self)


@asynccontextmanager
async def serving_http2(
    handler: Handler,
    tls: ssl.SSLContext | None = None,
    settings: Mapping[h2.settings.SettingCodes, int] | None = None,
) -> AsyncIterator[Server]:
    """Serve on loopback; TLS offers HTTP/2 only. Without it: in the clear, with prior knowledge."""
    server = Server(handler, settings or {})
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    listening = await asyncio.get_running_loop().create_server(server.peer, "127.0.0.1", 0, ssl=tls)
    host, port = listening.sockets[0].getsockname()[:2]
    server.url = f"{'http' if tls is None else 'https'}://{host}:{port}"
    server.port = port
    try:
        yield server
    finally:
        listening.close()
        for peer in list(server.peers):
            if peer.transport is not None:
                peer.transport.abort()
        await listening.wait_closed()

"""The HTTP/2 connections to one server with one set of credentials, and how they are opened."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.http2 import limits
from kubeletpy.kubeapi.http2.limits import CLOSE_S, Otherwise, place, watch_capacity
from kubeletpy.kubeapi.http2.stream import Stream, StreamRefused
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.transport import (
    Attempt,
    NameLookup,
    NotHttp2,
    TransportError,
    loaded,
    new_socket,
)
from kubeletpy.kubeapi.watch_state import HTTP2, MAX_WATCHES, Losses, Usage

if TYPE_CHECKING:
    from kubeletpy.kubeapi.http2.connection import Http2Connection


# Opening: TCP, TLS, and the protocol that the server has chosen.

_NEXT_ADDRESS_S = 0.25
"""RFC 8305: how long one address is tried alone."""


class Undecided(asyncio.Protocol):
    """A connection before the first request; keeps what the server sends first.

    Attributes:
        transport: the connection.
        early: bytes that came with the end of the handshake.
        lost: whether it is closed.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.early = bytearray()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is over."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A server may begin; no more is kept than one read brings."""
        assert self.transport is not None
        self.transport.pause_reading()
        self.early += data

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has closed it."""
        self.lost = True

    @property
    def speaks_http2(self) -> bool:
        """Whether the server has chosen HTTP/2 in the handshake."""
        assert self.transport is not None
        found: ssl.SSLObject | None = self.transport.get_extra_info("ssl_object")
        return found is not None and found.selected_alpn_protocol() == "h2"


async def dial(to: Connection, names: NameLookup, seconds: float) -> Undecided:
    """Connect, within so many seconds. Raises OSError (TimeoutError, SSLError) if that fails."""
    assert to.ssl is not None, "HTTP/2 is chosen in a TLS handshake"
    parts = urlsplit(to.host)
    host, port = parts.hostname or "", parts.port or 443
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds):
        connected = await aiohappyeyeballs.start_connection(
            await _addresses(host, port, names),
            happy_eyeballs_delay=_NEXT_ADDRESS_S,
            socket_factory=new_socket,
        )
        try:
            _, protocol = await loop.create_connection(
                Undecided,
                sock=connected,
                ssl=to.ssl,
                server_hostname=to.server_hostname or host,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except BaseException:
            connected.close()
            raise
    return protocol


async def _addresses(host: str, port: int, names: NameLookup) -> list[AddrInfoType]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = await names.resolve(host, port, socket.AF_UNSPEC)
        return [_address(each["host"], port) for each in found]
    return [_address(host, port)]


def _address(ip: str, port: int) -> AddrInfoType:
    if ":" in ip:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port)


class Http2Pool:
    """A :class:`~kubeletpy.kubeapi.transport.Transport`; its requests also raise NotHttp2."""

    def __init__(self, to: Connection, losses: Losses | None = None) -> None:
        self._to = to
        self._losses = losses or Losses()
        self._names = NameLookup()
        self._connections: list[Http2Connection] = []
        self._dialing: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._asking = 0
        self._closed = False
        parts = urlsplit(to.host)
        self._prefix = parts.path
        self._base = (
            (b":scheme", b"https"),
            (b":authority", parts.netloc.rpartition("@")[2].encode()),
        )

    async def request(self, attempt: Attempt) -> Stream:
        """Make one attempt, sent again only if the server has not begun with it.

        Raises:
            NotHttp2: nothing was sent.
            TransportError: no response.
        """
        deadline = asyncio.get_running_loop().time() + attempt.seconds
        data = attempt.data
        head = [
            (b":method", attempt.method.encode()),
            *self._base,
            (b":path", (self._prefix + attempt.path).encode()),
            *((name.lower().encode(), value.encode()) for name, value in attempt.headers.items()),
        ]
        if data is not None:
            head.append((b"content-length", str(len(data)).encode()))
        self._asking += 1
        try:
            for refusals in range(limits.MAX_REFUSALS + 1):
                connection = await self._free(attempt, deadline)
                try:
                    return await connection.request(head, data, deadline)
                except StreamRefused:
                    if refusals == limits.MAX_REFUSALS:
                        raise
            raise AssertionError("the last refusal is raised")
        finally:
            self._asking -= 1

    @property
    def watch_capacity(self) -> int:
        """Limited by the fewest streams that the server has announced for a connection."""
        loads = [each.load for each in self._connections]
        allowed = [load.allowed for load in loads if load.usable]
        return min(watch_capacity(min(allowed, default=limits.FIRST_STREAMS)), MAX_WATCHES)

    @property
    def usage(self) -> Usage:
        """Its open connections, also those that take no new streams."""
        streams = sum(each.load.streams for each in self._connections)
        since = min((each.opened_at for each in self._connections), default=None)
        count = len(self._connections)
        return Usage({HTTP2: count} if count else {}, streams, since=since)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._asking and not any(each.load.streams for each in self._connections)

    def retire(self) -> None:
        """Close each connection with its last stream; a request that waits still gets one."""
        for each in list(self._connections):
            each.retire()

    async def close(self) -> None:
        """Drop all connections; their requests fail."""
        self._closed = True
        await cancel_tasks((self._dialing,))
        for each in list(self._connections):
            each.abandon("the client is closed")
        self._changed()

    async def _free(self, attempt: Attempt, deadline: float) -> Http2Connection:
        """A connection that takes a stream now. Raises TransportError."""
        while True:
            if self._closed:
                raise TransportError("the client is closed")
            where = place([each.load for each in self._connections], lasting=attempt.lasting)
            if isinstance(where, int):
                return self._connections[where]
            try:
                async with asyncio.timeout_at(deadline):
                    if where is Otherwise.WAIT:
                        await self._change()
                    else:
                        await self._connect(attempt.connect_seconds)
            except TimeoutError:
                raise TransportError("no connection took the request in time") from None

    async def _connect(self, seconds: float) -> None:
        """Wait for one more connection, which all who need it wait for together."""
        if self._dialing is None:
            self._dialing = asyncio.ensure_future(self._dial(seconds))
            self._dialing.add_done_callback(self._dialed)
        await asyncio.shield(self._dialing)

    async def _dial(self, seconds: float) -> None:
        try:
            opened = await dial(self._to, self._names, seconds)
        except (TimeoutError, OSError) as error:
            why = str(error) or f"no connection within {seconds:g} s"
            raise TransportError(why) from error
        transport = opened.transport
        assert transport is not None, "the handshake is over"
        if not opened.speaks_http2:
            transport.abort()
            raise NotHttp2("the server has chosen HTTP/1.1")
        try:
            code = await loaded("kubeletpy.kubeapi.http2.connection")
        except BaseException:
            transport.abort()
            raise
        connection: Http2Connection = code.Http2Connection(self._changed, self._lost)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if opened.lost:
            connection.connection_lost(None)
            raise TransportError("the server closed the connection")
        transport.resume_reading()
        self._connections.append(connection)
        if opened.early:
            connection.data_received(bytes(opened.early))

    def _dialed(self, dialing: asyncio.Task[None]) -> None:
        self._dialing = None
        if not dialing.cancelled():
            dialing.exception()  # whoever waited has it

    def _lost(self, why: str) -> None:
        if not self._closed:
            self._losses.note(why, asyncio.get_running_loop().time())

    def _changed(self) -> None:
        self._connections = [each for each in self._connections if not each.lost]
        ending = [each for each in self._connections if each.ending]
        for each in ending[: -limits.MAX_ENDING]:
            each.abandon("too many connections wait for their end")
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

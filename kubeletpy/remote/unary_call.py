"""One unary gRPC call on a connection of its own, bounded whatever the server sends.

For small calls to untrusted servers: health checks of containers, registrations of plugins. gRPC's
own library answers every frame of a server and queues the answers without a bound. Must never
repeat a call that may have reached its server: only connecting is repeated.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Turns
from kubeletpy.base.wire.http2 import BOUNDS, Bounds, Exchange, ExchangeFailed, ExchangeFailure
from kubeletpy.remote import grpc_message
from kubeletpy.remote.errors import Code


async def carry_out(
    exchange: Exchange, connected: socket.socket, turns: Turns, *, tls: ssl.SSLContext | None = None
) -> None:
    """Carry out one HTTP/2 exchange over a connected socket, which is closed afterwards.

    Never holds more of a server's bytes than the exchange takes. The caller limits the time.

    Args:
        connected: a non-blocking socket, which belongs to the exchange from now on.
        turns: shared by all exchanges of the event loop.
        tls: must offer ``h2`` by ALPN; None: in the clear.

    Raises:
        ExchangeFailed: the server has sent no valid response.
        OSError: the connection broke.
    """
    loop = asyncio.get_running_loop()
    protocol = _Protocol(exchange, loop, turns)
    try:
        hostname = "" if tls is not None else None
        await loop.create_connection(
            lambda: protocol, sock=connected, ssl=tls, server_hostname=hostname
        )
        await protocol.finished
        protocol.raise_error()
    finally:
        protocol.close()


class _Protocol(Component, asyncio.Protocol):
    """Feeds an exchange until it is done or has failed."""

    exchange: Exchange
    loop: asyncio.AbstractEventLoop
    turns: Turns

    def __post_init__(self) -> None:
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self._error: Exception | None = None
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._closed: Exception | None = None
        """Why the connection ended, while received bytes wait for their turn."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            self._end(ConnectionError("the server does not agree on HTTP/2 in its TLS handshake"))
            return
        transport.write(self.exchange.start())

    def data_received(self, data: bytes) -> None:
        if self.finished.done() or self._transport is None:
            return
        self._transport.pause_reading()
        self._received = data[: self.exchange.most]
        self.turns.add(self._process)

    def _process(self) -> None:
        data, self._received = self._received, b""
        if self.finished.done() or self._transport is None:
            return
        try:
            reply = self.exchange.feed(data)
        except ExchangeFailed as error:
            self._end(error)
            return
        if self.exchange.done:
            self._end(None)
        elif self._closed is not None:
            self._end(self._closed)
        else:
            self._transport.resume_reading()
        if reply and not self._transport.is_closing():
            self._transport.write(reply)

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None and not isinstance(error, OSError):
            error = ConnectionError(str(error))
        self._closed = error or self.exchange.end()
        if not self._received:
            self._end(self._closed)

    def raise_error(self) -> None:
        """Raise the error that ended the exchange, if any.

        Nothing refers to it afterwards: with its traceback it would be part of a cycle.
        """
        error, self._error, self._closed = self._error, None, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def close(self) -> None:
        """Close the connection; what has not been read is dropped."""
        self.finished.cancel()
        if self._transport is not None:
            if self.exchange.done:
                self._transport.close()
            else:
                self._transport.abort()
            self._transport = None

    def _end(self, error: Exception | None) -> None:
        if not self.finished.done():
            self._error = error
            self.finished.set_result(None)


FIRST_RETRY_S, LAST_RETRY_S = 0.1, 0.5
"""Pauses between attempts to connect, which double; the caller ends them."""

Connect = Callable[[], Awaitable[socket.socket]]
"""A new connection, as a non-blocking socket. Raises OSError."""


class UnaryCall(Component):
    """A call to one method, whose connecting is repeated until it succeeds or the time is over.

    Attributes:
        connected: its server has sent the HTTP/2 settings.
        problem: why the last attempt to connect failed; empty: none has.
    """

    connect: Connect
    """Opens a connected socket."""
    authority: str
    """A host with its port."""
    method: str
    """``/package.Service/Method``."""
    user_agent: str
    turns: Turns
    """Shared by all calls of the event loop."""
    bounds: Bounds = BOUNDS
    tls: Sequence[ssl.SSLContext | None] = (None,)
    """Contexts for attempts to connect, one after another, which offer ``h2`` by ALPN; None is in
    the clear."""
    greeted: Callable[[], None] = lambda: None
    """Called when the server has sent its settings."""

    def __post_init__(self) -> None:
        self.connected = False
        self.problem = ""

    async def answer(self, message: bytes, within: float) -> bytes:
        """Return the answer; connecting is repeated until it is canceled.

        Args:
            within: seconds that the server has, which it is sent; the caller has to enforce it.

        Raises:
            CallFailed: the server answered an error, or what is no answer.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + within, FIRST_RETRY_S
        for tls in itertools.cycle(self.tls):
            request = grpc_message.head(
                self.authority,
                self.method,
                self.user_agent,
                deadline - loop.time(),
                tls=tls is not None,
            )
            exchange = Exchange(
                request, grpc_message.framed(message), self.bounds, greeting=self._now_connected
            )
            try:
                await carry_out(exchange, await self.connect(), self.turns, tls=tls)
                response = grpc_message.GrpcResponse(
                    exchange.status, exchange.headers, bytes(exchange.body), exchange.trailers
                )
                return grpc_message.read_message(response)
            except OSError as error:
                if exchange.greeted:
                    raise grpc_message.CallFailed(
                        Code.UNAVAILABLE, f"connection lost: {error}"
                    ) from None
                self.problem = error.strerror or str(error)
            except ExchangeFailed as error:
                if exchange.greeted or error.cause is not ExchangeFailure.CLOSED:
                    raise _failure(error) from None
                self.problem = str(error)
            if tls is self.tls[-1]:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_S)
        raise AssertionError("there is a context, or None, to connect with")

    def _now_connected(self) -> None:
        self.connected = True
        self.greeted()


def _failure(error: ExchangeFailed) -> grpc_message.CallFailed:
    match error.cause:
        case ExchangeFailure.RESET:
            text = f"stream terminated by RST_STREAM with error code: {error.reset}"
            return grpc_message.CallFailed(grpc_message.reset_code(error.reset), text)
        case ExchangeFailure.BOUNDS:
            text = f"{error} in answer to one call; it was disconnected"
            return grpc_message.CallFailed(Code.RESOURCE_EXHAUSTED, text)
        case _:
            return grpc_message.CallFailed(Code.UNAVAILABLE, str(error))

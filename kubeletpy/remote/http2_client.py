"""Carries out one HTTP/2 exchange over a connected socket, which is closed afterwards.

Must never hold more of a server's bytes than the exchange takes, nor process the bytes of two
servers in one turn of the event loop.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable

from kubeletpy.base.wire.http2_exchange import Exchange, ExchangeFailed


class Turns:
    """Runs one piece of work in a turn of the event loop, in order of arrival.

    Servers that answer at the same moment hold the loop no longer than one of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        """Call ``work`` in a later turn; it must not raise."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        work()


async def carry_out(
    exchange: Exchange,
    connected: socket.socket,
    turns: Turns,
    *,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Return when the exchange is done; the caller limits the time.

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


class _Protocol(asyncio.Protocol):
    """Feeds an exchange until it is done or has failed."""

    def __init__(self, exchange: Exchange, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self.finished: asyncio.Future[None] = loop.create_future()
        self._error: Exception | None = None
        self._exchange = exchange
        self._turns = turns
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
        transport.write(self._exchange.start())

    def data_received(self, data: bytes) -> None:
        if self.finished.done() or self._transport is None:
            return
        self._transport.pause_reading()
        self._received = data[: self._exchange.most]
        self._turns.add(self._process)

    def _process(self) -> None:
        data, self._received = self._received, b""
        if self.finished.done() or self._transport is None:
            return
        try:
            reply = self._exchange.feed(data)
        except ExchangeFailed as error:
            self._end(error)
            return
        if self._exchange.done:
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
        self._closed = error or self._exchange.end()
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
            if self._exchange.done:
                self._transport.close()
            else:
                self._transport.abort()
            self._transport = None

    def _end(self, error: Exception | None) -> None:
        if not self.finished.done():
            self._error = error
            self.finished.set_result(None)

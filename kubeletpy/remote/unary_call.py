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

from kubeletpy.base.wire.http2_exchange import (
    BOUNDS,
    Bounds,
    Exchange,
    ExchangeFailed,
    ExchangeFailure,
)
from kubeletpy.remote.errors import Code
from kubeletpy.remote.grpc_message import (
    CallFailed,
    GrpcResponse,
    framed,
    head,
    read_message,
    reset_code,
)
from kubeletpy.remote.http2_client import Turns, carry_out

FIRST_RETRY_S, LAST_RETRY_S = 0.1, 0.5
"""Pauses between attempts to connect, which double; the caller ends them."""

Connect = Callable[[], Awaitable[socket.socket]]
"""A new connection, as a non-blocking socket. Raises OSError."""


class UnaryCall:
    """A call.

    Attributes:
        connected: its server has sent the HTTP/2 settings.
        problem: why the last attempt to connect failed; empty: none has.
    """

    def __init__(
        self,
        connect: Connect,
        authority: str,
        method: str,
        user_agent: str,
        turns: Turns,
        *,
        bounds: Bounds = BOUNDS,
        tls: Sequence[ssl.SSLContext | None] = (None,),
        greeted: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        method: ``/package.Service/Method``.
        tls: contexts for attempts to connect, one after another, which offer ``h2`` by ALPN; None
            is in the clear.
        greeted: called when the server has sent its settings.
        """
        self.connected = False
        self.problem = ""
        self._connect = connect
        self._authority = authority
        self._method = method
        self._user_agent = user_agent
        self._turns = turns
        self._bounds = bounds
        self._tls = tls
        self._greeted = greeted

    async def answer(self, message: bytes, within: float) -> bytes:
        """The answer; connecting is repeated until it is cancelled.

        Args:
            within: seconds that the server has, which it is sent; the caller has to enforce it.

        Raises:
            CallFailed: the server answered an error, or what is no answer.
        """
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + within, FIRST_RETRY_S
        for tls in itertools.cycle(self._tls):
            request = head(
                self._authority,
                self._method,
                self._user_agent,
                deadline - loop.time(),
                tls=tls is not None,
            )
            exchange = Exchange(
                request, framed(message), self._bounds, greeting=self._now_connected
            )
            try:
                await carry_out(exchange, await self._connect(), self._turns, tls=tls)
                response = GrpcResponse(
                    exchange.status, exchange.headers, bytes(exchange.body), exchange.trailers
                )
                return read_message(response)
            except OSError as error:
                if exchange.greeted:
                    raise CallFailed(Code.UNAVAILABLE, f"connection lost: {error}") from None
                self.problem = error.strerror or str(error)
            except ExchangeFailed as error:
                if exchange.greeted or error.cause is not ExchangeFailure.CLOSED:
                    raise _failure(error) from None
                self.problem = str(error)
            if tls is self._tls[-1]:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_RETRY_S)
        raise AssertionError("there is a context, or None, to connect with")

    def _now_connected(self) -> None:
        self.connected = True
        self._greeted()


def _failure(error: ExchangeFailed) -> CallFailed:
    match error.cause:
        case ExchangeFailure.RESET:
            text = f"stream terminated by RST_STREAM with error code: {error.reset}"
            return CallFailed(reset_code(error.reset), text)
        case ExchangeFailure.BOUNDS:
            text = f"{error} in answer to one call; it was disconnected"
            return CallFailed(Code.RESOURCE_EXHAUSTED, text)
        case _:
            return CallFailed(Code.UNAVAILABLE, str(error))

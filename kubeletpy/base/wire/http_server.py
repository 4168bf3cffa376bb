"""The HTTP server of every listening socket: an aiohttp application behind a bounded listener.

Only interfaces that aiohttp supports are used. No answer names the software behind it, and no
browser guesses its type. Must never depend on an invalid request, nor quote it in a log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.client_exceptions import ClientConnectionResetError

from kubeletpy.base.structs import Component
from kubeletpy.base.wire.listener import ConnectionLimiter, Listener, TlsInUse

log = logging.getLogger(__name__)

IDLE_S = 60.0
LINGER_S = 2.0
"""Seconds for which the rest of an unread body is drained, so that the client reads the answer."""
STOP_S = 1.0
"""Seconds that requests may take when the server closes."""
MAX_LINE = 64 << 10
"""Bytes of a request's first line where clients are authenticated: the command of an exec is in its
query."""


class HttpServer(Component):
    """Serves an application on one listening socket.

    The handler of a client that has disconnected is canceled.

    Attributes:
        limiter: of the connections; it is notified of those whose client is known.
    """

    app: web.Application
    """Not started yet."""
    limiter: ConnectionLimiter
    idle_s: float | None = None
    """Seconds that a connection may stay open without a complete request; None for ``IDLE_S``."""
    max_line: int = 8190
    """Bytes of a request's first line."""

    def __post_init__(self) -> None:
        self.app.on_response_prepare.append(_complete_head)
        self._runner = web.AppRunner(self.app, handler_cancellation=True, shutdown_timeout=STOP_S)
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": IDLE_S if self.idle_s is None else self.idle_s,
            "lingering_time": LINGER_S,
            "max_line_size": self.max_line,
        }
        self._listeners: list[Listener] = []

    async def start(self, sock: socket.socket, tls: TlsInUse | None = None) -> None:
        """Serve a listening socket, which is closed together with this server; may be repeated."""
        if not self._listeners:
            await self._runner.setup()
        server = self._runner.server
        assert server is not None, "it has been set up"

        def make_protocol(on_lost: Callable[[], None]) -> asyncio.Protocol:
            return _RequestHandler(server, on_lost, **self._options)

        listener = Listener(sock, self.limiter, make_protocol, tls)
        self._listeners.append(listener)
        listener.start()

    async def close(self) -> None:
        """Stop listening and end every connection."""
        for each in self._listeners:
            each.close()
        await self._runner.cleanup()


async def _complete_head(_request: web.Request, response: web.StreamResponse) -> None:
    """Called by aiohttp before the headers of an answer to a valid request are sent."""
    response.headers.pop("Server", None)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    if isinstance(response, web.HTTPException):
        response.with_traceback(None)


_CLIENT_ERRORS = (web.RequestPayloadError, web.PayloadAccessError, ClientConnectionResetError)
"""Anyone who reaches a port can send an invalid body, or leave before the answer."""


class _RequestHandler(web.RequestHandler):
    """The protocol of a connection; errors leave no reference cycles, and a quiet log.

    An error that is kept after it was caught refers to the frames that it passed, which refer to
    it. So every invalid request left its connection in a reference cycle, for the garbage
    collector.
    """

    __slots__ = ("_on_lost",)

    def __init__(self, server: web.Server, on_lost: Callable[[], None], **options: Any) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, logger=log, **options)
        self._on_lost = on_lost

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the transport, or for the protocol that has replaced this one."""
        super().connection_lost(exc)
        self._on_lost()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an error unless a client has caused it."""
        error = kw.get("exc_info")
        if isinstance(error, _CLIENT_ERRORS):
            _log_client_error(error)
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a request that is no HTTP, or whose handler failed."""
        if status == HTTPStatus.BAD_REQUEST and self.transport is not None:
            # aiohttp would answer with a head of its own
            _log_client_error(exc)
            self.transport.write(_invalid(message or ""))
            answer: web.StreamResponse = SentResponse()
        else:
            answer = super().handle_error(request, status, exc, message)
        if exc is not None:
            exc.with_traceback(None)
        return answer


def _log_client_error(error: BaseException | None) -> None:
    log.debug(
        "a client sent something other than an HTTP request, or has disconnected",
        extra={"error": type(error).__name__},
    )


def _invalid(message: str) -> bytes:
    """The answer to bytes that are no HTTP request."""
    body = message.encode("utf-8", "replace")
    lines = (
        "HTTP/1.1 400 Bad Request",
        "Content-Type: text/plain; charset=utf-8",
        "X-Content-Type-Options: nosniff",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


class SentResponse(web.StreamResponse):
    """Returned for a request that has its answer: aiohttp sends nothing, and closes."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Send no head; it has been sent."""

    async def write_eof(self, data: Any = b"") -> None:
        """Send no end of a body; it has been sent, or the connection is not aiohttp's."""


# Upgrades. aiohttp handles those to WebSocket only; a handler hijacks the connection for others.


def is_upgrade(request: web.Request) -> bool:
    """Whether a request is for an upgrade of its connection."""
    tokens = {part.strip().lower() for part in request.headers.get("Connection", "").split(",")}
    return "upgrade" in tokens and bool(request.headers.get("Upgrade"))


class _Early:
    """Collects the bytes that follow a request for an upgrade."""

    def __init__(self) -> None:
        self.data = bytearray()

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Called by aiohttp with bytes that it has not parsed."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """Called by aiohttp when the connection is lost."""


class Hijacked:
    """A client's connection, which aiohttp no longer reads; its answer is a :class:`SentResponse`.

    Attributes:
        transport: to be given a protocol of its own at once.
        early: bytes that followed the request.
    """

    def __init__(self, request: web.Request) -> None:
        """Take the connection. Raises ConnectionResetError if the client has disconnected."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has disconnected")
        self.transport = transport
        self._handler = request.protocol
        early: Any = _Early()
        self._handler.set_parser(early)
        self.early = bytes(early.data)

    def release(self) -> None:
        """Have aiohttp forget the connection, which has ended."""
        asyncio.get_running_loop().call_soon(self._handler.connection_lost, None)

"""The httpGet handler: one GET on a connection of its own, redirects on the same host followed.

No proxy, no keep-alive, no compression, no cookies, no check of certificates
(docs/reference/behaviour.md, m3). We use our own client instead of aiohttp's: at hundreds of probes
per second it takes a third of the time, and it sends the path as written. It also bounds what it
reads (bytes and chunks) and the work that this causes (how often it reads a connection).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kubeletpy.base.wire.listener import curves
from kubeletpy.probes.handlers.http_request import BadHandlerRequest, HttpRequest, redirected
from kubeletpy.probes.handlers.http_response import MalformedResponse, ResponseReader
from kubeletpy.probes.handlers.network import Resolver, connected, in_words, raise_if_not_probed
from kubeletpy.probes.handlers.outcome import KEPT_OUTPUT, HandlerResult, Reply
from kubeletpy.probes.handlers.ports import host_port, is_address
from kubeletpy.probes.handlers.unchecked_tls import unchecked_context

MAX_REDIRECTS = 10
TLS_CLOSE_S = 1.0
"""Seconds that a server has to answer a TLS close."""
MAX_LOCATION = 8 * 1024
"""Maximum characters of a redirect's target: each is encoded anew, and sent."""
READ_BYTES = 16 * 1024
"""Bytes that are read at once."""
FREE_READS = 64
"""Reads of a response without a pause. A server that sends byte by byte then waits."""
READ_PAUSE_S = 0.02
"""Seconds between later reads: what arrives meanwhile is read at once."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ANSWERED_PLAINLY = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)
_NO_COMMON_CURVE = "SSLV3_ALERT_HANDSHAKE_FAILURE"


class HandlerExchangeFailed(Exception):
    """No response: the message contains the reason."""


class NotTLS(HandlerExchangeFailed):
    """The server answered an https request in the clear."""


class _HandshakeRefused(HandlerExchangeFailed):
    """The server may have another elliptic curve than the one that was offered."""


class HandlerResponse(Protocol):
    """The parts of a response that a probe or a hook needs."""

    @property
    def status(self) -> int:
        """Its status code."""
        ...

    @property
    def body(self) -> bytes | bytearray:
        """Its first bytes, KEPT_OUTPUT at most."""
        ...


Answered = tuple[HandlerResponse, HttpRequest | None]
"""A response, and the request after it where it redirects to the same host."""
Exchange = Callable[[Resolver, HttpRequest], Awaitable[Answered]]
"""Sends a request and reads its response. Raises ExchangeFailed, BadRequest."""


async def probe(
    resolver: Resolver, request: HttpRequest, timeout: float, exchange: Exchange | None = None
) -> Reply:
    """Send a request, within ``timeout`` seconds in total: 2xx is Success, an unfollowed redirect
    Warning.

    Args:
        resolver: of names of hosts.
        request: the first one.
        timeout: in seconds, for all redirects together.
        exchange: how to send a request and read its response; None: over HTTP/1.1.

    Raises:
        HandlerError: the machine has run out of something, such as descriptors.
    """
    try:
        async with asyncio.timeout(timeout):
            reader = await get(resolver, request, exchange)
    except TimeoutError:
        return _failed(request, "context deadline exceeded (Client.Timeout exceeded)")
    except (HandlerExchangeFailed, BadHandlerRequest) as error:
        raise_if_not_probed(error)
        return _failed(request, str(error))
    if not 200 <= reader.status < 400:
        # The body is left out: the text goes into events.
        return Reply(HandlerResult.FAILURE, f"HTTP probe failed with statuscode: {reader.status}")
    body = reader.body.decode("utf-8", "replace")
    if reader.status >= 300:
        return Reply(HandlerResult.WARNING, f"Probe terminated redirects, Response body: {body}")
    return Reply(HandlerResult.SUCCESS, body)


def _failed(request: HttpRequest, why: str) -> Reply:
    return Reply(HandlerResult.FAILURE, f'Get "{request.url}": {why}')


async def get(
    resolver: Resolver, request: HttpRequest, exchange: Exchange | None = None
) -> HandlerResponse:
    """The response, after redirects on the same host. The caller limits the time.

    Raises:
        ExchangeFailed: there was none, or too many redirects.
        BadRequest: the request, or a redirect, is invalid.
    """
    for _ in range(MAX_REDIRECTS):
        response, following = await (exchange or _exchange)(resolver, request)
        if following is None:
            return response
        request = following
    raise HandlerExchangeFailed(f"stopped after {MAX_REDIRECTS} redirects")


async def _exchange(resolver: Resolver, request: HttpRequest) -> Answered:
    """One request and its response. Raises ExchangeFailed, BadRequest."""
    *others, last = curves() if request.tls else ("",)
    for curve in others:
        with contextlib.suppress(_HandshakeRefused):
            return await _exchange_over(resolver, request, curve)
    return await _exchange_over(resolver, request, last)


async def _exchange_over(resolver: Resolver, request: HttpRequest, curve: str) -> Answered:
    protocol = _Exchange(request, asyncio.get_running_loop())
    try:
        await _connect(resolver, request, protocol, curve)
        await protocol.finished
    except MalformedResponse as error:
        raise HandlerExchangeFailed(str(error)) from error
    except OSError as error:
        raise HandlerExchangeFailed(f"read: {in_words(error)}") from error
    finally:
        protocol.close()
    return protocol.reader, protocol.following


async def _connect(
    resolver: Resolver, request: HttpRequest, protocol: _Exchange, curve: str
) -> None:
    loop = asyncio.get_running_loop()
    try:
        address = await resolver.address(request.host)
        sock = await connected(address, request.port)
        # from here on the loop owns the socket, even when the handshake fails
        try:
            await loop.create_connection(lambda: protocol, sock=sock, **_tls(request, curve))
        except ConnectionError as error:
            raise _HandshakeRefused(f"tls: {in_words(error)}") from error
    except ssl.SSLError as error:
        if error.reason in _ANSWERED_PLAINLY:
            raise NotTLS("http: server gave HTTP response to HTTPS client") from error
        refused = error.reason == _NO_COMMON_CURVE
        raise (_HandshakeRefused if refused else HandlerExchangeFailed)(
            f"tls: {error.reason or error}"
        ) from error
    except OSError as error:
        where = host_port(request.host, request.port)
        raise HandlerExchangeFailed(f"dial tcp {where}: {in_words(error)}") from error


def _tls(request: HttpRequest, curve: str) -> dict[str, Any]:
    if not request.tls:
        return {}
    return {
        "ssl": unchecked_context(curve),
        "server_hostname": "" if is_address(request.host) else request.host,
        "ssl_shutdown_timeout": TLS_CLOSE_S,
    }


def following(request: HttpRequest, status: int, location: str | None) -> HttpRequest | None:
    """The request that follows a response; None: it is the last one. Raises BadRequest."""
    if status not in _REDIRECTS or not location:
        return None
    if len(location) > MAX_LOCATION:
        raise BadHandlerRequest(f"the Location header is longer than {MAX_LOCATION} characters")
    return redirected(request, location)


class _Exchange(asyncio.Protocol):
    """Sends the request once connected, and reads until it has enough.

    ``following``: the request after this one, where the response redirects to it.
    """

    def __init__(self, request: HttpRequest, loop: asyncio.AbstractEventLoop) -> None:
        """Raises BadRequest."""
        self.reader = ResponseReader(KEPT_OUTPUT, self._needs_body)
        self.finished: asyncio.Future[None] = loop.create_future()
        self.following: HttpRequest | None = None
        self._request = request
        self._encoded = request.encoded()
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reads = 0
        self._pause: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        transport.write(self._encoded)

    def data_received(self, data: bytes) -> None:
        self._reads += 1
        try:
            self.reader.feed(data)
        except (MalformedResponse, BadHandlerRequest) as error:
            self._end(error)
            return
        if self.reader.done:
            self._end(None)
        elif self._reads >= FREE_READS and self._transport is not None:
            self._transport.pause_reading()
            self._pause = self._loop.call_later(READ_PAUSE_S, self._transport.resume_reading)

    def _needs_body(self, reader: ResponseReader) -> bool:
        """Whether the body is read: that of a redirect that is followed is not.

        Raises:
            BadRequest: the redirect is invalid.
        """
        location = reader.header("location")
        self.following = following(self._request, reader.status, location)
        return self.following is None

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            try:
                self.reader.end()
            except MalformedResponse as malformed:
                error = malformed
        self._end(error)

    def close(self) -> None:
        """Close the connection without waiting for late answers."""
        self.finished.cancel()
        if self._pause is not None:
            self._pause.cancel()
        if self._transport is None:
            return
        if self.reader.done:
            self._transport.close()
        else:
            self._transport.abort()

    def _end(self, error: Exception | None) -> None:
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        elif isinstance(error, OSError | MalformedResponse | BadHandlerRequest):
            self.finished.set_exception(error)
        else:
            self.finished.set_exception(ConnectionError(str(error)))

"""The handlers httpGet, tcpSocket and exec, with the sockets and names that they need.

httpGet is one GET on a connection of its own, redirects on the same host followed: no proxy, no
keep-alive, no compression, no cookies, no check of certificates (docs/reference/behaviour.md, m3).
We use our own client instead of aiohttp's: at hundreds of probes per second it takes a third of the
time, and it sends the path as written. It also bounds what it reads (bytes and chunks) and the work
that this causes (how often it reads a connection).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from kubeletpy.base.api.times import format_duration
from kubeletpy.base.host.errors import exhausted
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.wire.listener import NO_FINITE_FIELD, curves, limit_key_exchange
from kubeletpy.probes.handlers.http_messages import (
    BadHandlerRequest,
    HttpRequest,
    MalformedResponse,
    ResponseReader,
    redirected,
)
from kubeletpy.probes.handlers.outcome import (
    KEPT_OUTPUT,
    HandlerError,
    HandlerResult,
    Reply,
    host_port,
    is_address,
)
from kubeletpy.remote.errors import CRIError, DeadlineExceeded
from kubeletpy.remote.protocol import RuntimeService

# Names, sockets, and the texts of their errors

RESOLVER_THREADS = 4
NEXT_ADDRESS_S = 0.3
"""Seconds that one address of a name is tried alone: the FallbackDelay of Go's net.Dialer."""

_ERROR_TEXTS = {
    errno.ECONNREFUSED: "connect: connection refused",
    errno.EHOSTUNREACH: "connect: no route to host",
    errno.ENETUNREACH: "connect: network is unreachable",
    errno.ETIMEDOUT: "connect: connection timed out",
    errno.ECONNRESET: "connection reset by peer",
}


def raise_if_not_probed(error: Exception) -> None:
    """Raise HandlerError if the machine lacked descriptors or threads for the probe.

    The container's health is then unknown, and nothing is restarted for that.
    """
    if (cause := exhausted(error)) is not None:
        raise HandlerError(f"the container could not be probed: {cause}") from error


class Resolver:
    """Resolves hosts to addresses in threads of its own.

    So an unresponsive name server delays only the resolution of names.
    """

    def __init__(self) -> None:
        self._threads = PatientThreads(RESOLVER_THREADS)

    async def connected(self, host: str, port: int) -> socket.socket:
        """Return a non-blocking TCP socket that is connected to an address, or to one of a name.

        A name may have an address that nothing listens at, as ``localhost`` has ``::1`` for most
        servers. The next one is tried after a failure, or after NEXT_ADDRESS_S, as in Go's dialer.

        Raises:
            OSError: the name has no address, or none of them accepts the connection.
        """
        if is_address(host):
            return await connected(host, port)
        found = await self._threads.run(_resolve_host, host, port)
        return await aiohappyeyeballs.start_connection(found, happy_eyeballs_delay=NEXT_ADDRESS_S)


def _resolve_host(host: str, port: int) -> list[AddrInfoType]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is invalid in names
        raise OSError(f"lookup {host[:253]}: no such host") from error
    except socket.gaierror as error:
        raise OSError(f"lookup {host[:253]}: {error.strerror or 'no such host'}") from error
    return list(dict.fromkeys(found))


def error_text(error: OSError) -> str:
    """Return the message of a system call's error, as the kubelet words it."""
    if error.errno in _ERROR_TEXTS:
        return _ERROR_TEXTS[error.errno]
    if error.errno is None:
        return str(error) or type(error).__name__
    return (error.strerror or os.strerror(error.errno)).lower()


async def connected(address: str, port: int) -> socket.socket:
    """Return a non-blocking TCP socket that is connected to an address. Raises OSError."""
    sock = new_socket(address)
    try:
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


def new_socket(address: str) -> socket.socket:
    """Return a non-blocking TCP socket for an address. Raises OSError.

    SO_LINGER is not set: on Linux closing a lingering socket blocks, even a non-blocking one.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


@functools.cache
def unchecked_context(curve: str, protocol: str = "") -> ssl.SSLContext:
    """Return a client's context that verifies nothing: pods have certificates of their own.

    It offers one elliptic curve, and ``protocol`` by ALPN unless that is empty.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers(f"DEFAULT:{NO_FINITE_FIELD}:@SECLEVEL=0")  # unverified keys may be weak
    limit_key_exchange(context, curve)
    if protocol:
        context.set_alpn_protocols([protocol])
    return context


# httpGet

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


class HandlerResponse(Struct, frozen=True):
    """A status code, and the first KEPT_OUTPUT bytes of a body."""

    status: int
    body: bytes


Answered = tuple[HandlerResponse, HttpRequest | None]
"""A response, and the request after it where it redirects to the same host."""
Exchange = Callable[[Resolver, HttpRequest], Awaitable[Answered]]
"""Sends a request and reads its response. Raises HandlerExchangeFailed, BadHandlerRequest."""


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
        HandlerExchangeFailed: there was none, or too many redirects.
        BadHandlerRequest: the request, or a redirect, is invalid.
    """
    for _ in range(MAX_REDIRECTS):
        response, following = await (exchange or _exchange)(resolver, request)
        if following is None:
            return response
        request = following
    raise HandlerExchangeFailed(f"stopped after {MAX_REDIRECTS} redirects")


async def _exchange(resolver: Resolver, request: HttpRequest) -> Answered:
    """Send one request and read its response.

    Raises HandlerExchangeFailed, BadHandlerRequest.
    """
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
        raise HandlerExchangeFailed(f"read: {error_text(error)}") from error
    finally:
        protocol.close()
    response = HandlerResponse(protocol.reader.status, bytes(protocol.reader.body))
    return response, protocol.following


async def _connect(
    resolver: Resolver, request: HttpRequest, protocol: _Exchange, curve: str
) -> None:
    loop = asyncio.get_running_loop()
    try:
        sock = await resolver.connected(request.host, request.port)
        # from here on the loop owns the socket, even when the handshake fails
        try:
            await loop.create_connection(lambda: protocol, sock=sock, **_tls(request, curve))
        except ConnectionError as error:
            raise _HandshakeRefused(f"tls: {error_text(error)}") from error
    except ssl.SSLError as error:
        if error.reason in _ANSWERED_PLAINLY:
            raise NotTLS("http: server gave HTTP response to HTTPS client") from error
        refused = error.reason == _NO_COMMON_CURVE
        raise (_HandshakeRefused if refused else HandlerExchangeFailed)(
            f"tls: {error.reason or error}"
        ) from error
    except OSError as error:
        where = host_port(request.host, request.port)
        raise HandlerExchangeFailed(f"dial tcp {where}: {error_text(error)}") from error


def _tls(request: HttpRequest, curve: str) -> dict[str, Any]:
    if not request.tls:
        return {}
    return {
        "ssl": unchecked_context(curve),
        "server_hostname": "" if is_address(request.host) else request.host,
        "ssl_shutdown_timeout": TLS_CLOSE_S,
    }


def following(request: HttpRequest, status: int, location: str | None) -> HttpRequest | None:
    """Return the request after a response, or None if it is the last. Raises BadHandlerRequest."""
    if status not in _REDIRECTS or not location:
        return None
    if len(location) > MAX_LOCATION:
        raise BadHandlerRequest(f"the Location header is longer than {MAX_LOCATION} characters")
    return redirected(request, location)


class _Exchange(Component, asyncio.BufferedProtocol):
    """Sends the request once connected, and reads until it has enough.

    ``following``: the request after this one, where the response redirects to it.
    """

    request: HttpRequest
    loop: asyncio.AbstractEventLoop

    def __post_init__(self) -> None:
        self.reader = ResponseReader(KEPT_OUTPUT, self._needs_body)
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self.following: HttpRequest | None = None
        self._encoded = self.request.encoded()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._reads = 0
        self._pause: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._encoded)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reads += 1
        try:
            self.reader.feed(self._buffer[:nbytes])
        except (MalformedResponse, BadHandlerRequest) as error:
            self._end(error)
            return
        if self.reader.done:
            self._end(None)
        elif self._reads >= FREE_READS and self._transport is not None:
            self._transport.pause_reading()
            self._pause = self.loop.call_later(READ_PAUSE_S, self._transport.resume_reading)

    def _needs_body(self, reader: ResponseReader) -> bool:
        """Whether the body is read: that of a redirect that is followed is not.

        Raises:
            BadHandlerRequest: the redirect is invalid.
        """
        location = reader.header("location")
        self.following = following(self.request, reader.status, location)
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


# tcpSocket and exec


async def connect(resolver: Resolver, host: str, port: int, timeout: float) -> Reply:
    """Return Success if a connection is made within ``timeout`` seconds, else Failure.

    Sends nothing.

    Raises:
        HandlerError: the machine has run out of something, such as descriptors.
    """
    where = f"dial tcp {host_port(host, port)}"
    try:
        async with asyncio.timeout(timeout):
            (await resolver.connected(host, port)).close()
    except TimeoutError:
        return Reply(HandlerResult.FAILURE, f"{where}: i/o timeout")
    except OSError as error:
        raise_if_not_probed(error)
        return Reply(HandlerResult.FAILURE, f"{where}: {error_text(error)}")
    return Reply(HandlerResult.SUCCESS)


async def run_command(
    runtime: RuntimeService, container_id: str, command: Sequence[str], timeout: float
) -> Reply:
    """Run a command through the runtime: Success if it exits with 0 within ``timeout`` seconds.

    A ``timeout`` of 0 is no limit.

    A command that ends otherwise, or does not end, is a Failure: its output has the details. The
    answer may come after the limit: a runtime waits for every process that holds the command's
    output open, even when the command itself has ended. The call's own deadline bounds the wait;
    probes keep a shorter one (:mod:`kubeletpy.probes.prober`).

    Raises:
        HandlerError: the runtime could not run the command.
    """
    try:
        answer = await runtime.exec_sync(container_id, command, timeout)
    except DeadlineExceeded:
        reported = " ".join(command)[:200]
        return Reply(
            HandlerResult.FAILURE,
            f'command timed out: "{reported}" timed out after {format_duration(int(timeout))}',
        )
    except CRIError as error:
        raise HandlerError(
            f"rpc error: code = {error.code.reported} desc = {error.details or error}"
        ) from error
    output = answer.stdout[:KEPT_OUTPUT]
    output += answer.stderr[: KEPT_OUTPUT - len(output)]
    text = output.decode("utf-8", "replace")
    worked = HandlerResult.SUCCESS if answer.exit_code == 0 else HandlerResult.FAILURE
    return Reply(worked, text, answer.exit_code)

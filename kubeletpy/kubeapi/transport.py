"""Carries requests to an API server: TCP, names, gzip and rate limits of HTTP/1.1 and HTTP/2.

One interface hides the protocol. Neither implementation retries or interprets a status. Must never
put a header or a body into an error.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
import ssl
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

import aiohappyeyeballs
import backoff
from aiohappyeyeballs import AddrInfoType

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Struct
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.watch_state import Usage

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult


WITHOUT_MANAGED_FIELDS = ";drop=metadata.managedFields"
"""Parameter of a media type in Accept. Servers before gate ManagedFieldsOptOut ignore it."""
MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""Bytes of a response that is read as a whole; a page of a list holds 500 objects."""


class TransportError(Exception):
    """There is no response, or it broke off; the message contains the reason."""


def why(error: BaseException) -> str:
    """The message of an error; its type for one without."""
    return str(error) or type(error).__name__


class NotHttp2(TransportError):
    """Nothing was sent: the server has chosen HTTP/1.1."""


class StreamRefused(TransportError):
    """The server has not begun with the request: it can be sent again."""


class Attempt(Struct, frozen=True):
    """One attempt of a request; its text has no header and no body, which may be secret.

    Attributes:
        path: path and query, percent-encoded.
        seconds: from now to the end of the body.
        connect_seconds: for a new connection.
        lasting: a watch.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    data: bytes | None
    seconds: float
    connect_seconds: float
    lasting: bool

    def __repr__(self) -> str:
        return f"{self.method} {self.path}"


class Response(ABC):
    """A response whose head has arrived. Close it when done; closing it twice is harmless.

    Attributes:
        status: the HTTP status code.
        content_length: bytes of the body as the server announced them; None if it did not.
    """

    status: int
    content_length: int | None

    @abstractmethod
    def header(self, name: str) -> str:
        """A header's value, or an empty string; ``name`` in lower case."""

    @abstractmethod
    def encoded_chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, in its Content-Encoding. Raises TransportError."""

    @abstractmethod
    def close(self) -> None:
        """Drop what has not been read."""

    async def read(self, limit: int = MAX_ANSWER_BYTES) -> bytes:
        """The whole body, decompressed, at most ``limit`` bytes.

        Raises:
            TransportError: it breaks off, or is longer.
        """
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                self.close()
                raise TransportError(f"the answer is larger than {limit} bytes")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, decompressed. Raises TransportError when it breaks off."""
        try:
            async for piece in decompressed(self.header("content-encoding"), self.encoded_chunks()):
                yield piece
        except TransportError:
            self.close()
            raise


class Transport(Protocol):
    """The connections to one server with one set of credentials."""

    async def request(self, attempt: Attempt) -> Response:
        """Wait for the response's head. Raises TransportError: there is no response."""

    @property
    def watch_capacity(self) -> int:
        """Watches of pods' objects that it carries at once; changes with the server's settings."""

    @property
    def usage(self) -> Usage:
        """The current load of its connections; which streams are watches is left to others."""

    @property
    def idle(self) -> bool:
        """Whether no response is being read or waited for."""

    def retire(self) -> None:
        """Take no more requests, and close each connection when its last response has ended."""

    async def close(self) -> None:
        """Drop all connections; whoever still reads a response gets an error."""


# TCP: options that notice when the server has vanished.

_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""A server that has vanished is noticed within half a minute, also by a silent watch on HTTP/1.1.

With TCP_USER_TIMEOUT set Linux does not count probes (TCP_KEEPCNT): it gives up at the first that
is due after that time without an answer. Three are sent before.
"""


def new_socket(address: Any) -> socket.socket:
    """A socket for an address as ``getaddrinfo`` returns it."""
    family, kind, protocol, _name, _address = address
    new = socket.socket(family=family, type=kind, proto=protocol)
    for level, option, value in _OPTIONS:
        new.setsockopt(level, option, value)
    return new


# Names are resolved in threads of their own. The event loop's lookup shares its threads with all
# file work. If those are busy, or blocked by a name server that does not answer, a heartbeat would
# wait with everything else.

CHECK_UPS = 2
"""At once, for one set of connections; aiohttp looks up a name only once at a time."""


class NameLookup:
    """Addresses, as aiohttp's resolvers give them. Process exit does not wait for a lookup."""

    def __init__(self) -> None:
        self._threads = PatientThreads(CHECK_UPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a name. Raises OSError if it has none."""
        return await self._threads.run(_resolve_name, host, port, family)

    async def close(self) -> None:
        """Threads end by themselves."""


def _resolve_name(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    flags = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    try:
        found = socket.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except UnicodeError as error:  # a label that is invalid in any name
        raise OSError(None, f"{host[:253]}: no such host") from error
    # getnameinfo also returns the scope of a link-local address
    return [
        {
            "hostname": host,
            "host": socket.getnameinfo(address, flags)[0],
            "port": int(address[1]),
            "family": each,
            "proto": protocol,
            "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        }
        for each, _, protocol, _, address in dict.fromkeys(found)
    ]


# Dialing: TCP, TLS, and the protocol that the server has chosen.

_NEXT_ADDRESS_S = 0.25
"""RFC 8305: how long one address is tried alone."""
_CLOSE_S = 2.0
"""For the end of a TLS connection."""


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
    """Connect within so many seconds. Raises OSError (TimeoutError, SSLError) if that fails."""
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
                ssl_shutdown_timeout=_CLOSE_S,
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


# Code of a transport, loaded when a server turns out to need it.

_code: dict[str, Any] = {}
_threads = PatientThreads(1)
"""A separate pool: a heartbeat waits for no file work."""


async def loaded(name: str) -> Any:
    """A module, imported in a thread: aiohttp and h2 would block the event loop for 0.1 s.

    Raises TransportError: it can't be loaded now (for example, no descriptor is left); the next
    attempt may.
    """
    if name not in _code:
        try:
            _code[name] = await _threads.run(import_module, name)
        except (OSError, ImportError) as error:
            raise TransportError(f"the protocol's code can't be loaded: {error}") from error
    return _code[name]


# Gzip. An API server compresses answers of 128 KiB and more. From Kubernetes 1.37 on it also
# compresses a watch that begins with a list (gate WatchListCompression). Such a body is a series
# of gzip members, one for each flush, so a body may contain any number of them. No decompressed
# byte is held back, also when its member has not ended yet.

PIECE_BYTES = 64 * 1024
"""Decompressed bytes that are returned at once at most, however well they were compressed."""
SLICE_BYTES = 16 * 1024
"""Compressed bytes that are processed at once: what is left of them is copied for each piece."""
MAX_SILENT_BYTES = 16 * 1024
"""Compressed bytes in a row that yield nothing (some 800 empty members, headers without end):
they cost time and a reader never sees them."""
_GZIP = 16 + zlib.MAX_WBITS


class Inflater:
    """Takes the bytes of a body in order; call :meth:`end` after the last."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False
        """Whether the current member has bytes."""
        self._members = 0
        """Members that have ended."""
        self._silent = 0

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decompress to, piece by piece. Raises TransportError."""
        for at in range(0, len(data), SLICE_BYTES):
            yield from self._decompress_slice(data[at : at + SLICE_BYTES])

    def _decompress_slice(self, data: bytes) -> Iterator[bytes]:
        pending = False
        while data or pending:
            self._begun = True
            try:
                piece = self._member.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise TransportError(self._broken(error)) from None
            left = self._member.unused_data or self._member.unconsumed_tail
            self._silent = 0 if piece else self._silent + len(data) - len(left)
            if self._silent > MAX_SILENT_BYTES:
                raise TransportError(f"{self._silent} bytes of the answer's gzip contain nothing")
            data = left
            # a full piece may leave output inside zlib although it has taken all of its input
            pending = len(piece) == PIECE_BYTES
            if self._member.eof:
                self._member, self._begun, pending = zlib.decompressobj(_GZIP), False, False
                self._members += 1
            if piece:
                yield piece

    def end(self) -> None:
        """End the body. Raises TransportError if it ends inside a gzip member."""
        if self._begun:
            raise TransportError("the answer ends before its gzip")

    def _broken(self, error: zlib.error) -> str:
        if not self._members:
            return f"the answer is no gzip: {error}"
        return f"the answer is no gzip after its member {self._members}: {error}"


async def decompressed(encoding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body without their Content-Encoding, each as soon as it arrives.

    Raises:
        TransportError: the encoding is neither gzip nor identity, or the bytes do not match it.
    """
    if encoding in ("", "identity"):
        async for chunk in chunks:
            yield chunk
        return
    if encoding != "gzip":
        raise TransportError("the answer has a content-encoding that was not requested")
    inflater = Inflater()
    async for chunk in chunks:
        for piece in inflater.decompress(chunk):
            yield piece
            await asyncio.sleep(0)  # a little may become a lot
    inflater.end()


# Rate limits: a token bucket, and backoff after failures. Decisions take the time as an argument;
# only :meth:`RateLimiter.wait` waits, on the loop's clock.


class RateLimiter(Component):
    """``qps`` requests per second on average, ``burst`` at once; ``qps`` 0 is no limit.

    Source: docs/reference/config.csv: kubeAPIQPS, kubeAPIBurst, eventRecordQPS, eventBurst.
    """

    qps: float
    burst: int

    def __post_init__(self) -> None:
        self._interval = 1.0 / self.qps if self.qps > 0 else 0.0
        self._slack = max(self.burst - 1, 0) * self._interval
        self._next = float("-inf")

    def reserve(self, now: float) -> float:
        """Reserve the next token; returns the seconds to wait for it."""
        start = max(self._next, now - self._slack)
        self._next = start + self._interval
        return max(start - now, 0.0)

    async def wait(self) -> float | None:
        """Wait for a token; returns the seconds waited, None without a limit."""
        if not self._interval:
            return None
        delay = self.reserve(asyncio.get_running_loop().time())
        if delay:
            await asyncio.sleep(delay)
        return delay


class RepairPace(Component):
    """When to write again what others remove from the API: the first time at once, then ever later.

    Another program may remove it each time. The wait between two repairs doubles, until they are
    four times as far apart as required.
    """

    first: float
    longest: float

    def __post_init__(self) -> None:
        self._wait = self.first
        self._last = float("-inf")

    def due(self, now: float) -> bool:
        """Whether a repair may be made."""
        return now >= self._last + self._wait

    def repaired(self, now: float) -> None:
        """A repair is made now."""
        calm = now >= self._last + 4 * self._wait
        self._wait = self.first if calm else min(2 * self._wait, self.longest)
        self._last = now


def spread(wait: float, chance: float) -> float:
    """Seconds to wait when a server requested ``wait``: up to twice as long, never less.

    A busy server sends thousands of nodes the same number, and must not meet them all again at
    once.

    Args:
        chance: a random number from 0 to 1.
    """
    return wait * (1 + chance)


def jittered_waits(first: float, longest: float, rng: random.Random) -> Iterator[float]:
    """Seconds to wait after each failure in a row: doubling, with jitter up to twice as long.

    Args:
        first: seconds before jitter; ``longest`` is their bound, also before jitter.

    Source: docs/reference/constants.csv: reflector backoff.
    """
    for seconds in islice(backoff.expo(factor=first, max_value=longest), 1, None):
        yield seconds * rng.uniform(1.0, 2.0)

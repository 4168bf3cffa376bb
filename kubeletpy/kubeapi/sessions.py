"""Which connection to the API server takes a request, and with which credentials.

Must never retry by itself: it makes one attempt of one request.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kubeletpy.base.structs import Component, field, replace
from kubeletpy.base.tasks import cancel_tasks, run_together, wait_within
from kubeletpy.base.version import VERSION
from kubeletpy.kubeapi import errors, watch_state
from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.kubeconfig import Connection, KubeconfigError
from kubeletpy.kubeapi.transport import (
    WITHOUT_MANAGED_FIELDS,
    Attempt,
    NameLookup,
    NotHttp2,
    Response,
    StreamRefused,
    Transport,
    TransportError,
    dial,
    loaded,
)
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer

if TYPE_CHECKING:
    from kubeletpy.kubeapi.http2 import Http2Connection

logger = logging.getLogger(__name__)

USER_AGENT = f"kubeletpy/{VERSION} ({platform.system().lower()}/{platform.machine()})"
_ALWAYS = {
    "User-Agent": USER_AGENT,
    "Accept": f"application/json{WITHOUT_MANAGED_FIELDS}",
    "Accept-Encoding": "gzip",
}
RETIRED_S = 3630.0
"""How long requests with old credentials may last: a watch lasts an hour at most."""
_MAX_RETIRED = 4
_PORTS = {"https": 443, "http": 80}


OpenTransport = Callable[[Connection], Transport]
"""Creates what carries requests with one set of credentials; it connects when it is used."""


class Session(Component):
    """The connections to one server with one set of credentials.

    They speak HTTP/2, or HTTP/1.1 if the server prefers that; the code of each is loaded when it is
    needed. Implements :class:`~kubeletpy.kubeapi.transport.Transport`.
    """

    to: Connection
    losses: watch_state.Losses = field(default_factory=watch_state.Losses)

    def __post_init__(self) -> None:
        # only aiohttp tunnels through a proxy, and without TLS no protocol is negotiated
        self._fallen_back = self.to.ssl is None or bool(self.to.proxy)
        self._http1: Transport | None = None
        self._names = NameLookup()
        self._connections: list[Http2Connection] = []
        self._dialing: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._asking = 0
        """Requests over HTTP/2 that have no stream, or whose response has not started."""
        self._closed = False
        parts = urlsplit(self.to.host)
        self._prefix = parts.path
        self._base = (
            (b":scheme", b"https"),
            (b":authority", parts.netloc.rpartition("@")[2].encode()),
        )

    async def request(self, attempt: Attempt) -> Response:
        """Make one attempt, sent again only if the server has not begun with it.

        Raises:
            TransportError: no response.
        """
        if not self._fallen_back:
            try:
                return await self._over_http2(attempt)
            except NotHttp2:
                # for as long as these credentials: a handshake for each request would cost more
                self._fallen_back = True
        if self._http1 is None:
            code = await loaded("kubeletpy.kubeapi.http1")
            if self._closed:
                raise TransportError("the client is closed")
            self._http1 = self._http1 or code.Http1Transport(self.to)
        assert self._http1 is not None, "made above, if by nobody else meanwhile"
        return await self._http1.request(attempt)

    async def _over_http2(self, attempt: Attempt) -> Response:
        """Raises NotHttp2 if the server has chosen HTTP/1.1: then nothing was sent."""
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
        """Over HTTP/2 limited by the fewest streams that the server allows on a connection."""
        if self._fallen_back:
            return watch_state.MAX_HTTP1_WATCHES
        loads = [each.load for each in self._connections]
        allowed = [load.allowed for load in loads if load.usable]
        most = limits.watch_capacity(min(allowed, default=limits.FIRST_STREAMS))
        return min(most, watch_state.MAX_WATCHES)

    @property
    def usage(self) -> watch_state.Usage:
        """The load of its connections, also of those that take no new streams."""
        streams = sum(each.load.streams for each in self._connections)
        since = min((each.opened_at for each in self._connections), default=None)
        count = len(self._connections)
        http2 = watch_state.Usage({watch_state.HTTP2: count} if count else {}, streams, since=since)
        return http2 if self._http1 is None else watch_state.together([http2, self._http1.usage])

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        busy = self._asking or any(each.load.streams for each in self._connections)
        return not busy and (self._http1 is None or self._http1.idle)

    def retire(self) -> None:
        """Close each connection with its last stream; a request that waits still gets one."""
        for each in list(self._connections):
            each.retire()
        if self._http1 is not None:
            self._http1.retire()

    async def close(self) -> None:
        """Drop the connections; whoever still reads a response gets an error."""
        self._closed = True
        await cancel_tasks((self._dialing,))
        for each in list(self._connections):
            each.abandon("the client is closed")
        self._changed()
        if self._http1 is not None:
            await self._http1.close()

    async def _free(self, attempt: Attempt, deadline: float) -> Http2Connection:
        """A connection that takes a stream now. Raises TransportError."""
        while True:
            if self._closed:
                raise TransportError("the client is closed")
            where = limits.place([each.load for each in self._connections], lasting=attempt.lasting)
            if isinstance(where, int):
                return self._connections[where]
            try:
                async with asyncio.timeout_at(deadline):
                    if where is limits.Otherwise.WAIT:
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
            opened = await dial(self.to, self._names, seconds)
        except (TimeoutError, OSError) as error:
            raise TransportError(str(error) or f"no connection within {seconds:g} s") from error
        transport = opened.transport
        assert transport is not None, "the handshake is over"
        if not opened.speaks_http2:
            transport.abort()
            raise NotHttp2("the server has chosen HTTP/1.1")
        try:
            code = await loaded("kubeletpy.kubeapi.http2")
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
            self.losses.note(why, asyncio.get_running_loop().time())

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


class Sessions(Component):
    """One session at a time, created when first needed."""

    connection: Connection | None
    """None: requests wait until ``renew`` has found credentials."""
    reconnect: Callable[[], Awaitable[Connection]] | None
    observer: watch_state.RequestObserver
    tracer: Tracer = NO_TRACER
    open_transport: OpenTransport | None = None
    """None: HTTP/2 or HTTP/1.1, as the server prefers."""

    def __post_init__(self) -> None:
        self.losses = watch_state.Losses(self.observer.connection_lost)
        """Connections that were lost; those of :meth:`apart` are counted with these."""
        self._open: OpenTransport = self.open_transport or partial(Session, losses=self.losses)
        self._watches = 0
        self._known = asyncio.Event()
        if self.connection is not None:
            self._known.set()
        self._retired: deque[Transport] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._session: Transport | None = None
        self._reloading = asyncio.Lock()
        self._reloaded_at = float("-inf")
        self._closed = False

    def apart(self) -> Sessions:
        """Another one to the same server, with the same credentials and its own connections."""
        return Sessions(
            self.connection, self.reconnect, self.observer, self.tracer, open_transport=self._open
        )

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        seconds: float,
        connect_seconds: float,
        data: bytes | None,
        headers: dict[str, str],
        lasting: bool = False,
        again: bool = False,
    ) -> AsyncIterator[Response]:
        """Make one attempt, not the first one if ``again``; any HTTP response is yielded.

        Its span lasts as long as the ``async with``, in which the caller reads the body.

        Args:
            seconds: from now to the end of the response.
            connect_seconds: for a new connection.
            lasting: a watch.

        Raises:
            Unavailable: no response.
        """
        connection = self.connection or await self._credentials(connect_seconds)
        session = self._current(connection)
        headers = {**_ALWAYS, **headers}
        if connection.authorization:
            headers["Authorization"] = connection.authorization
        started = time.perf_counter()
        code: int | None = None
        attributes = _of_span(method, connection.host, path)
        with self.tracer.span(f"HTTP {method}", attributes, client=True) as span:
            headers |= span.carrier
            attempt = Attempt(method, path, headers, data, seconds, connect_seconds, lasting)
            try:
                response = await session.request(attempt)
                code = response.status
            except TransportError as error:
                where = f"{method} {connection.host}{path.partition('?')[0]}"
                raise errors.Unavailable(f"{where}: {error}") from error
            finally:
                took, sent = time.perf_counter() - started, len(data or b"")
                self.observer.tried(code, method, self.authority, took, sent, again=again)
            span.set("http.response.status_code", code)
            if code >= 400:
                span.failed("")
            self._watches += lasting
            try:
                yield response
            finally:
                self._watches -= lasting

    @property
    def usage(self) -> watch_state.Usage:
        """The load of its connections, including those for old credentials."""
        sessions = [*self._retired, *([self._session] if self._session is not None else ())]
        return replace(
            watch_state.together([each.usage for each in sessions]), watches=self._watches
        )

    @property
    def watch_capacity(self) -> int:
        """Watches of pods' objects that its connections carry at once."""
        return watch_state.MAX_WATCHES if self._session is None else self._session.watch_capacity

    @property
    def host(self) -> str:
        """Base URL of the API server; empty while there are no credentials."""
        return "" if self.connection is None else self.connection.host

    @property
    def authority(self) -> str:
        """Host and port from the API server's address; "none" before it is known."""
        return self.host.partition("://")[2].partition("/")[0].rpartition("@")[2] or "none"

    async def _credentials(self, seconds: float) -> Connection:
        if not await wait_within(self._known, seconds):
            raise errors.Unavailable("there are no credentials for the API yet")
        assert self.connection is not None, "the event was set"
        return self.connection

    def _current(self, connection: Connection) -> Transport:
        if self._closed:
            raise errors.Unavailable("the client is closed")
        if self._session is None:
            self._session = self._open(connection)
        return self._session

    async def reload(self, at_most_every: float) -> bool:
        """Renew the credentials; returns whether another attempt makes sense.

        Args:
            at_most_every: seconds; within them the current credentials are kept.
        """
        if self.reconnect is None:
            return False
        before = self._reloaded_at
        async with self._reloading:
            if self._reloaded_at != before:
                return True
            now = asyncio.get_running_loop().time()
            if now - self._reloaded_at < at_most_every:
                return False
            self._reloaded_at = now
            try:
                await self._reconnected()
            except KubeconfigError as error:
                logger.warning("credentials not renewed", extra={"error": str(error)})
                return False
            await self.reset()
            return True

    async def renew(self) -> None:
        """Use new credentials for new connections; requests in flight end on their old ones.

        Raises:
            KubeconfigError: there are none; the old ones stay in use.
        """
        if self.reconnect is None:
            return
        async with self._reloading:
            await self._reconnected()
            self._reloaded_at = asyncio.get_running_loop().time()
            session, self._session = self._session, None
            if session is not None:
                session.retire()
                self._retired.append(session)
                asyncio.get_running_loop().call_later(RETIRED_S, self._let_go, session)
            busy = [each for each in self._retired if not each.idle][-_MAX_RETIRED:]
            let_go = [each for each in self._retired if each not in busy]
            self._retired = deque(busy)
            for each in let_go:
                await each.close()

    async def _reconnected(self) -> None:
        assert self.reconnect is not None, "called only when reconnecting is possible"
        self.connection = await self.reconnect()
        self._known.set()

    def _let_go(self, session: Transport) -> None:
        if session in self._retired:
            self._retired.remove(session)
            task = asyncio.get_running_loop().create_task(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def reset(self) -> None:
        """Drop the session; its requests in flight fail."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """Drop the session for good."""
        self._closed = True
        while self._retired:
            await self._retired.popleft().close()
        await run_together(*self._closing)
        await self.reset()


def _of_span(method: str, host: str, path: str) -> dict[str, str | int]:
    """Attributes as OpenTelemetry's HTTP client for Go has them."""
    base, name, port = _server(host)
    return {
        "http.request.method": method,
        "url.full": base + path,
        "server.address": name,
        "server.port": port,
    }


@lru_cache(maxsize=4)
def _server(host: str) -> tuple[str, str, int]:
    url = urlsplit(host)
    base = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl().rstrip("/")
    return base, url.hostname or "", url.port or _PORTS.get(url.scheme, 0)

"""The HTTP connections to one API server, and their credentials, renewed when refused.

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
from typing import Any
from urllib.parse import urlsplit

from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import run_together
from kubeletpy.base.version import VERSION
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.kubeconfig import Connection, KubeconfigError
from kubeletpy.kubeapi.transport import (
    Attempt,
    NotHttp2,
    Response,
    Transport,
    TransportError,
    loaded,
)
from kubeletpy.kubeapi.watch_state import (
    MAX_HTTP1_WATCHES,
    MAX_WATCHES,
    Losses,
    NoObserver,
    RequestObserver,
    Usage,
    together,
)
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer

logger = logging.getLogger(__name__)

USER_AGENT = f"kubeletpy/{VERSION} ({platform.system().lower()}/{platform.machine()})"
_ALWAYS = {"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip"}
RETIRED_S = 3630.0
"""How long requests with old credentials may last: a watch lasts an hour at most."""
_MAX_RETIRED = 4
_PORTS = {"https": 443, "http": 80}


OpenTransport = Callable[[Connection], Transport]
"""Creates what carries requests with one set of credentials; it connects when it is used."""


class _Session:
    """The transport for one set of credentials: HTTP/2, or HTTP/1.1 if the server prefers that.

    Each is loaded when it is needed.
    """

    def __init__(self, connection: Connection, losses: Losses | None = None) -> None:
        self._connection = connection
        self._losses = losses
        self._http1: Transport | None = None
        self._http2: Transport | None = None
        self._closed = False
        # only aiohttp tunnels through a proxy, and without TLS no protocol is negotiated
        self._fallen_back = connection.ssl is None or bool(connection.proxy)

    async def request(self, attempt: Attempt) -> Response:
        """One attempt of one request, as a transport does it."""
        if not self._fallen_back:
            if self._http2 is None:
                code = await self._loaded("kubeletpy.kubeapi.http2.pool")
                self._http2 = self._http2 or code.Http2Pool(self._connection, self._losses)
            assert self._http2 is not None, "made above, if by nobody else meanwhile"
            try:
                return await self._http2.request(attempt)
            except NotHttp2:
                # for as long as these credentials: a handshake for each request would cost more
                self._fallen_back = True
        if self._http1 is None:
            code = await self._loaded("kubeletpy.kubeapi.http1")
            self._http1 = self._http1 or code.Http1Transport(self._connection)
        assert self._http1 is not None, "made above, if by nobody else meanwhile"
        return await self._http1.request(attempt)

    async def _loaded(self, name: str) -> Any:
        code = await loaded(name)
        if self._closed:
            raise TransportError("the client is closed")
        return code

    @property
    def watch_capacity(self) -> int:
        """The capacity of the transport in use; before there is one, that of HTTP/2."""
        if self._fallen_back:
            return MAX_HTTP1_WATCHES
        return MAX_WATCHES if self._http2 is None else self._http2.watch_capacity

    @property
    def _transports(self) -> list[Transport]:
        return [each for each in (self._http2, self._http1) if each is not None]

    @property
    def usage(self) -> Usage:
        """The load of both protocols' connections."""
        return together([each.usage for each in self._transports])

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return all(each.idle for each in self._transports)

    def retire(self) -> None:
        """Take no more requests."""
        for each in self._transports:
            each.retire()

    async def close(self) -> None:
        """Drop the connections; whoever still reads a response gets an error."""
        self._closed = True
        for each in self._transports:
            await each.close()


class Sessions:
    """One session at a time, created when first needed."""

    def __init__(
        self,
        connection: Connection | None,
        reconnect: Callable[[], Awaitable[Connection]] | None,
        observer: RequestObserver | None,
        tracer: Tracer = NO_TRACER,
        *,
        open_transport: OpenTransport | None = None,
    ) -> None:
        """``connection`` None: requests wait until ``renew`` has found credentials.

        ``open_transport`` None: HTTP/2 or HTTP/1.1, as the server prefers.
        """
        self._tracer = tracer
        self.observer = observer or NoObserver()
        self.losses = Losses(self.observer.connection_lost)
        """Connections that were lost; those of :meth:`apart` are counted with these."""
        self._open: OpenTransport = open_transport or partial(_Session, losses=self.losses)
        self._watches = 0
        self._connection = connection
        self._known = asyncio.Event()
        if connection is not None:
            self._known.set()
        self._retired: deque[Transport] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._reconnect = reconnect
        self._session: Transport | None = None
        self._reloading = asyncio.Lock()
        self._reloaded_at = float("-inf")
        self._closed = False

    def apart(self) -> Sessions:
        """Another one to the same server, with the same credentials and its own connections."""
        return Sessions(
            self._connection,
            self._reconnect,
            self.observer,
            self._tracer,
            open_transport=self._open,
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
        connection = self._connection or await self._credentials(connect_seconds)
        session = self._current(connection)
        headers = {**_ALWAYS, **headers}
        if connection.authorization:
            headers["Authorization"] = connection.authorization
        started = time.perf_counter()
        code: int | None = None
        attributes = _of_span(method, connection.host, path)
        with self._tracer.span(f"HTTP {method}", attributes, client=True) as span:
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
    def usage(self) -> Usage:
        """The load of its connections, including those for old credentials."""
        sessions = [*self._retired, *([self._session] if self._session is not None else ())]
        return replace(together([each.usage for each in sessions]), watches=self._watches)

    @property
    def watch_capacity(self) -> int:
        """Watches of pods' objects that its connections carry at once."""
        return MAX_WATCHES if self._session is None else self._session.watch_capacity

    @property
    def host(self) -> str:
        """Base URL of the API server; empty while there are no credentials."""
        return "" if self._connection is None else self._connection.host

    @property
    def authority(self) -> str:
        """Host and port from the API server's address; "none" before it is known."""
        return self.host.partition("://")[2].partition("/")[0].rpartition("@")[2] or "none"

    async def _credentials(self, seconds: float) -> Connection:
        try:
            async with asyncio.timeout(seconds):
                await self._known.wait()
        except TimeoutError:
            raise errors.Unavailable("there are no credentials for the API yet") from None
        assert self._connection is not None, "the event was set"
        return self._connection

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
        if self._reconnect is None:
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
        if self._reconnect is None:
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
        assert self._reconnect is not None, "called only when reconnecting is possible"
        self._connection = await self._reconnect()
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

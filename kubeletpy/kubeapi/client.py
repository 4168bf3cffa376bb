"""The real Kubernetes API over HTTP: objects in and out, errors as types.

The official client loads the credentials (:mod:`kubeletpy.kubeapi.credentials`); requests go
over our own transports (:mod:`kubeletpy.kubeapi.sessions`) because building the client's models
costs more than the request. Must never log a header or a body.

Bounds: a client has at most CONCURRENT_REQUESTS in flight besides its watches. So a burst opens few
connections on HTTP/1.1 (each costs a handshake and 0.2 MB) and is fair to other nodes. Every
request has a deadline. A 429 or 503 with a Retry-After is retried at most RETRIES times. A 401
reloads the credentials at most every RELOAD_SECONDS and is retried once. All other failures are the
caller's to retry.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.credentials import Connection, connect_kubeconfig
from kubeletpy.kubeapi.formats import JSON_FORMAT, UNREADABLE, WireFormat
from kubeletpy.kubeapi.http_calls import HttpCall, error_of, http_call
from kubeletpy.kubeapi.limits import RateLimiter, spread
from kubeletpy.kubeapi.observer import RequestObserver
from kubeletpy.kubeapi.protocol import MAX_VERSION_BYTES, Call, KubeApi, WatchEvent
from kubeletpy.kubeapi.sessions import OpenTransport, Sessions
from kubeletpy.kubeapi.transport import Response, TransportError, why
from kubeletpy.kubeapi.usage import Usage, together
from kubeletpy.metrics.trace.tracer import NO_TRACER, Tracer

CONCURRENT_REQUESTS = 10
RETRIES = 3
RETRY_AFTER_MAX = 30.0
RELOAD_SECONDS = 10.0
REQUEST_TIMEOUT = 30.0
WATCH_SLACK = 30.0


class KubeClient(KubeApi):
    """A :class:`~kubeletpy.kubeapi.protocol.KubeApi` over HTTP. Close it when done.

    :meth:`limited` returns clients that share the connections but have their own rate limit,
    :meth:`apart` clients that share only the credentials.
    """

    def __init__(
        self,
        connection: Connection | None,
        *,
        reconnect: Callable[[], Awaitable[Connection]] | None = None,
        qps: float = 50,
        burst: int = 100,
        timeout: float = REQUEST_TIMEOUT,
        observer: RequestObserver | None = None,
        tracer: Tracer = NO_TRACER,
        open_transport: OpenTransport | None = None,
        form: WireFormat = JSON_FORMAT,
        rng: random.Random | None = None,
    ) -> None:
        """Args:
        connection: where to connect and as whom; None: requests wait for ``renew_credentials``.
        reconnect: returns fresh credentials after a 401, and when requested to renew them.
        qps: requests per second (0: no limit); ``burst`` at once.
        timeout: seconds for one attempt of a request.
        observer: counts requests and responses.
        tracer: where requests are sent as spans.
        open_transport: what carries the requests; None: HTTP/2 or HTTP/1.1 over TCP.
        form: how objects are written and read.
        rng: for jitter.
        """
        self._form = form
        self._sessions = Sessions(
            connection, reconnect, observer, tracer, open_transport=open_transport
        )
        self._others: list[Sessions] = []
        self._rng = rng or random.Random()
        self._limiter = RateLimiter(qps, burst)
        self._under_way = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._timeout = timeout

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str,
        *,
        qps: float = 50,
        burst: int = 100,
        timeout: float = REQUEST_TIMEOUT,
        observer: RequestObserver | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> KubeClient:
        """A client for a kubeconfig's current context. Raises KubeconfigError."""
        return cls(
            await connect_kubeconfig(path),
            reconnect=lambda: connect_kubeconfig(path),
            qps=qps,
            burst=burst,
            timeout=timeout,
            observer=observer,
            tracer=tracer,
        )

    def limited(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client on the same connections with its own rate limit (0: none) and timeout."""
        return self._like(self._sessions, qps, burst, timeout)

    def apart(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client with its own connections, rate limit and timeout, and this one's credentials.

        Heartbeats need one, or a busy node could be taken for dead: they never wait for other
        requests, however many connections those take. Closed with this one.
        """
        sessions = self._sessions.apart()
        self._others.append(sessions)
        return self._like(sessions, qps, burst, timeout)

    def _like(
        self, sessions: Sessions, qps: float, burst: int, timeout: float | None
    ) -> KubeClient:
        client = KubeClient.__new__(KubeClient)
        client._sessions = sessions
        client._others = []
        client._form = self._form
        client._rng = self._rng
        client._limiter = RateLimiter(qps, burst)
        client._under_way = asyncio.Semaphore(CONCURRENT_REQUESTS)
        client.streamed_lists = self.streamed_lists
        client.failing_watches = self.failing_watches
        client._timeout = self._timeout if timeout is None else timeout
        return client

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return self._sessions.host

    @property
    def usage(self) -> Usage:
        """The current load of all connections, also those of other clients of this one."""
        all_of_it = together([each.usage for each in (self._sessions, *self._others)])
        return self._sessions.losses.added_to(all_of_it)

    @property
    def watch_capacity(self) -> int:
        """Limited by the protocol, and by the streams that the server allows."""
        return self._sessions.watch_capacity

    async def renew_credentials(self) -> None:
        """Use fresh credentials for new connections; requests and watches in flight continue.

        Raises:
            KubeconfigError: there are none; the old ones stay in use.
        """
        for sessions in (self._sessions, *self._others):
            await sessions.renew()

    async def close(self) -> None:
        """Close all connections, also those of clients made by :meth:`limited`, :meth:`apart`."""
        for sessions in (self._sessions, *self._others):
            await sessions.close()

    async def answer(self, call: Call) -> JSON:
        request = http_call(call, self._form)
        async with self._under_way, self._send(request, self._timeout) as response:
            try:
                body = await response.read()
                self._answered(request, len(body))
                answer = await self._form.decode(response.header("content-type"), body)
            except (TransportError, *UNREADABLE) as error:
                raise errors.Unavailable(
                    f"{request.method} {_path(request)}: unreadable answer: {why(error)}"
                ) from error
            finally:
                response.close()
        if not isinstance(answer, dict):
            raise errors.Unavailable(
                f"{request.method} {_path(request)}: the answer is not an object"
            )
        return answer

    async def version(self) -> bytes:
        request = HttpCall("GET", "/version", None, {})
        async with self._under_way, self._send(request, self._timeout) as response:
            try:
                body = await response.read(MAX_VERSION_BYTES)
            except TransportError as error:
                raise errors.Unavailable(f"GET /version: {why(error)}") from error
            finally:
                response.close()
        self._answered(request, len(body))
        return body

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        seconds, version = call.timeout_seconds + WATCH_SLACK, call.resource_version
        async with self._send(http_call(call, self._form), seconds, lasting=True) as response:
            try:
                yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": version}})
                kind = response.header("content-type")
                async for event in self._form.events(kind, response.chunks()):
                    yield event
            except TransportError as error:
                what = f"watch of {call.resource.plural}"
                raise errors.Unavailable(f"{what}: {why(error)}") from error
            finally:
                response.close()

    @asynccontextmanager
    async def _send(
        self, request: HttpCall, seconds: float, *, lasting: bool = False
    ) -> AsyncIterator[Response]:
        """Send until there is a final response: 2xx is yielded, the rest is raised."""
        reloaded = False
        for attempt in range(RETRIES + 2):
            await self._turn(request)
            async with self._sessions.request(
                request.method,
                request.url,
                seconds=seconds,
                connect_seconds=min(seconds, self._timeout),
                lasting=lasting,
                data=request.data,
                headers=request.headers,
                again=attempt > 0,
            ) as response:
                if response.status < 300:
                    yield response
                    return
                error = await error_of(response, self._form)
            if response.content_length is not None:
                self._answered(request, response.content_length)
            if isinstance(error, errors.Unauthorized) and not reloaded:
                reloaded = True
                if await self._sessions.reload(RELOAD_SECONDS):
                    continue
            wait = error.retry_after
            if error.code not in (429, 503) or wait is None or attempt >= RETRIES:
                raise error
            await asyncio.sleep(spread(min(wait, RETRY_AFTER_MAX), self._rng.random()))
        raise error

    async def _turn(self, request: HttpCall) -> None:
        waited = await self._limiter.wait()
        if waited is not None:
            self._sessions.observer.held_back(request.method, self._sessions.authority, waited)

    def _answered(self, request: HttpCall, received: int) -> None:
        self._sessions.observer.answered(request.method, self._sessions.authority, received)


def _path(request: HttpCall) -> str:
    return request.url.partition("?")[0]

"""The real Kubernetes API over HTTP: plain JSON in and out, errors as types.

The official client loads the credentials (:mod:`kubeletpy.kubeapi.credentials`); requests go
through aiohttp directly, because building the client's models costs more than the request. Must
never log a header or a body.

Bounds: a client has at most CONCURRENT_REQUESTS under way besides its watches, so that a burst
opens few connections (each costs a handshake and 0.2 MB); every request has a deadline; an answer
429 or 503 that names a Retry-After is tried again at most RETRIES times; a 401 reloads the
credentials at most every RELOAD_SECONDS and is tried once more. All other failures are the
caller's to retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp

from kubeletpy.api.types import JSON
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.credentials import Connection, connect_kubeconfig
from kubeletpy.kubeapi.http_calls import (
    UNREADABLE,
    HttpCall,
    decode,
    error_of,
    http_call,
    watch_events,
)
from kubeletpy.kubeapi.limits import RateLimiter
from kubeletpy.kubeapi.observer import RequestObserver
from kubeletpy.kubeapi.protocol import Call, KubeApi, WatchEvent
from kubeletpy.kubeapi.sessions import Sessions

CONCURRENT_REQUESTS = 10
RETRIES = 3
RETRY_AFTER_MAX = 30.0
RELOAD_SECONDS = 10.0
REQUEST_TIMEOUT = 30.0
WATCH_SLACK = 30.0


class KubeClient(KubeApi):
    """A :class:`~kubeletpy.kubeapi.protocol.KubeApi` over HTTP. Close it when done.

    :meth:`limited` gives further clients that share the connections and have their own rate,
    :meth:`apart` those that share nothing but the credentials.
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
    ) -> None:
        """Args:
        connection: where and as whom; None: requests wait until ``renew_credentials`` knows.
        reconnect: gives fresh credentials after a 401, and when asked to renew them.
        qps: requests a second (0: no limit); ``burst`` at once.
        timeout: seconds for one try of a request.
        observer: counts what is asked and answered.
        """
        self._sessions = Sessions(connection, reconnect, observer)
        self._others: list[Sessions] = []
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
    ) -> KubeClient:
        """A client for a kubeconfig's current context. Raises KubeconfigError."""
        return cls(
            await connect_kubeconfig(path),
            reconnect=lambda: connect_kubeconfig(path),
            qps=qps,
            burst=burst,
            timeout=timeout,
            observer=observer,
        )

    def limited(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client on the same connections with its own rate (0: none) and timeout."""
        return self._like(self._sessions, qps, burst, timeout)

    def apart(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client with its own connections, rate and timeout, and this one's credentials.

        Heartbeats need one, or a busy node could look dead: whatever else is asked, and however
        many connections that takes, theirs wait for none of it. Closed with this one.
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
        client._limiter = RateLimiter(qps, burst)
        client._under_way = asyncio.Semaphore(CONCURRENT_REQUESTS)
        client._timeout = self._timeout if timeout is None else timeout
        return client

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return self._sessions.host

    async def renew_credentials(self) -> None:
        """Use fresh credentials for new connections; requests and watches under way go on.

        Raises:
            KubeconfigError: there are none; the old ones go on.
        """
        for sessions in (self._sessions, *self._others):
            await sessions.renew()

    async def close(self) -> None:
        """Close all connections, also those of clients made by :meth:`limited`, :meth:`apart`."""
        for sessions in (self._sessions, *self._others):
            await sessions.close()

    async def _ask(self, call: Call) -> JSON:
        request = http_call(call)
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        async with self._under_way:
            response = await self._send(request, timeout)
            try:
                body = await response.read()
                self._answered(request, len(body))
                answer = decode(body)
            except (aiohttp.ClientError, TimeoutError, OSError, *UNREADABLE) as error:
                raise errors.Unavailable(
                    f"{request.method} {_path(request)}: unreadable answer: {_why(error)}"
                ) from error
            finally:
                response.release()
        if not isinstance(answer, dict):
            raise errors.Unavailable(
                f"{request.method} {_path(request)}: the answer is not an object"
            )
        return answer

    async def _follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        timeout = aiohttp.ClientTimeout(
            total=call.timeout_seconds + WATCH_SLACK, sock_connect=self._timeout
        )
        response = await self._send(http_call(call), timeout)
        try:
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": call.resource_version}})
            async for event in watch_events(response.content):
                yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unavailable(f"watch of {call.resource.plural}: {_why(error)}") from error
        finally:
            response.close()

    async def _send(
        self, request: HttpCall, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send until there is an answer to give: 2xx is returned, the rest raised."""
        reloaded = False
        for attempt in range(RETRIES + 2):
            await self._turn(request)
            response = await self._sessions.request(
                request.method,
                request.url,
                timeout=timeout,
                data=request.data,
                headers=request.headers,
                again=attempt > 0,
            )
            if response.status < 300:
                return response
            error = await error_of(response)
            if response.content_length is not None:
                self._answered(request, response.content_length)
            if isinstance(error, errors.Unauthorized) and not reloaded:
                reloaded = True
                if await self._sessions.reload(RELOAD_SECONDS):
                    continue
            wait = error.retry_after
            if error.code not in (429, 503) or wait is None or attempt >= RETRIES:
                raise error
            await asyncio.sleep(min(wait, RETRY_AFTER_MAX))
        raise error

    async def _turn(self, request: HttpCall) -> None:
        waited = await self._limiter.wait()
        if waited is not None:
            self._sessions.observer.held_back(request.method, self._sessions.authority, waited)

    def _answered(self, request: HttpCall, received: int) -> None:
        self._sessions.observer.answered(request.method, self._sessions.authority, received)


def _path(request: HttpCall) -> str:
    return request.url.partition("?")[0]


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__

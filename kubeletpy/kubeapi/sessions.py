"""The HTTP connections to one API server, and their credentials, renewed when refused.

Must never retry by itself: it makes one try of one request.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import socket
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import yarl

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.credentials import Connection, KubeconfigError
from kubeletpy.kubeapi.name_lookup import NameLookup
from kubeletpy.kubeapi.observer import NoObserver, RequestObserver
from kubeletpy.version import VERSION

logger = logging.getLogger(__name__)

USER_AGENT = f"kubeletpy/{VERSION} ({platform.system().lower()}/{platform.machine()})"
_MAX_CONNECTIONS = 1024
"""A watch holds one as long as it lasts; those of pods' objects are bounded well below."""
_IDLE_SECONDS = 60
RETIRED_S = 630.0
"""What is under way with old credentials may last so long: a watch lasts ten minutes at most."""
_MAX_RETIRED = 4
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""A server that has vanished is noticed within a minute, also by a silent watch."""


class _Session:
    """An aiohttp session and what is under way in it."""

    def __init__(self, connection: Connection) -> None:
        connector = aiohttp.TCPConnector(
            ssl=connection.ssl or True,
            limit=_MAX_CONNECTIONS,
            keepalive_timeout=_IDLE_SECONDS,
            socket_factory=_new_socket,
            resolver=NameLookup(),
        )
        self.http = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self.asking = 0
        """Requests whose answer has not begun."""
        self.answers: weakref.WeakSet[aiohttp.ClientResponse] = weakref.WeakSet()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self.asking and all(answer.closed for answer in self.answers)

    async def close(self) -> None:
        """Drop the connections; whoever still reads an answer gets an error."""
        # the session's own close leaves a reader waiting until its timeout
        for answer in list(self.answers):
            answer.close()
        await self.http.close()


class Sessions:
    """One aiohttp session at a time, made when first needed."""

    def __init__(
        self,
        connection: Connection | None,
        reconnect: Callable[[], Awaitable[Connection]] | None,
        observer: RequestObserver | None,
    ) -> None:
        """``connection`` None: requests wait until ``renew`` has found credentials."""
        self._connection = connection
        self._known = asyncio.Event()
        if connection is not None:
            self._known.set()
        self._retired: deque[_Session] = deque()
        self._reconnect = reconnect
        self.observer = observer or NoObserver()
        self._session: _Session | None = None
        self._reloading = asyncio.Lock()
        self._reloaded_at = float("-inf")
        self._closed = False

    def apart(self) -> Sessions:
        """Another one to the same server, with the same credentials and connections of its own."""
        return Sessions(self._connection, self._reconnect, self.observer)

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        data: bytes | None,
        headers: dict[str, str],
        again: bool = False,
    ) -> aiohttp.ClientResponse:
        """One try, not the first one if ``again``; any HTTP answer is returned.

        Raises:
            Unavailable: no answer.
        """
        connection = self._connection or await self._credentials(timeout)
        session = self._current(connection)
        extra: dict[str, Any] = {}
        if connection.server_hostname:
            extra["server_hostname"] = connection.server_hostname
        if connection.proxy:
            extra["proxy"] = connection.proxy
        if connection.authorization:
            headers = {**headers, "Authorization": connection.authorization}
        url = yarl.URL(connection.host + path, encoded=True)
        started = time.perf_counter()
        code: int | None = None
        session.asking += 1
        try:
            response = await session.http.request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                **extra,
            )
            code = response.status
            session.answers.add(response)
            return response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            where = f"{method} {connection.host}{path.partition('?')[0]}"
            raise errors.Unavailable(f"{where}: {str(error) or type(error).__name__}") from error
        finally:
            session.asking -= 1
            seconds, sent = time.perf_counter() - started, len(data or b"")
            self.observer.tried(code, method, self.authority, seconds, sent, again=again)

    @property
    def host(self) -> str:
        """Base URL of the API server; empty while there are no credentials."""
        return "" if self._connection is None else self._connection.host

    @property
    def authority(self) -> str:
        """Host and port of the API server as its address has them; "none" before it is known."""
        return self.host.partition("://")[2].partition("/")[0].rpartition("@")[2] or "none"

    async def _credentials(self, timeout: aiohttp.ClientTimeout) -> Connection:
        try:
            async with asyncio.timeout(timeout.sock_connect or timeout.total):
                await self._known.wait()
        except TimeoutError:
            raise errors.Unavailable("there are no credentials for the API yet") from None
        assert self._connection is not None, "the event says so"
        return self._connection

    def _current(self, connection: Connection) -> _Session:
        if self._closed:
            raise errors.Unavailable("the client is closed")
        if self._session is None:
            self._session = _Session(connection)
        return self._session

    async def reload(self, at_most_every: float) -> bool:
        """Renew the credentials; says whether another try makes sense.

        Args:
            at_most_every: seconds; sooner, the current ones are all there is.
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
        """Take new credentials for new connections; what is under way ends where it is.

        Raises:
            KubeconfigError: there are none; the old ones go on.
        """
        if self._reconnect is None:
            return
        async with self._reloading:
            await self._reconnected()
            self._reloaded_at = asyncio.get_running_loop().time()
            session, self._session = self._session, None
            if session is not None:
                self._retired.append(session)
                asyncio.get_running_loop().call_later(RETIRED_S, self._let_go, session)
            busy = [each for each in self._retired if not each.idle][-_MAX_RETIRED:]
            let_go = [each for each in self._retired if each not in busy]
            self._retired = deque(busy)
            for each in let_go:
                await each.close()

    async def _reconnected(self) -> None:
        assert self._reconnect is not None, "asked only when there is a way"
        self._connection = await self._reconnect()
        self._known.set()

    def _let_go(self, session: _Session) -> None:
        if session in self._retired:
            self._retired.remove(session)
            asyncio.get_running_loop().create_task(session.close())

    async def reset(self) -> None:
        """Drop the session; requests under way in it fail."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """Drop the session for good."""
        self._closed = True
        while self._retired:
            await self._retired.popleft().close()
        await self.reset()


def _new_socket(address: Any) -> socket.socket:
    family, kind, protocol, _name, _address = address
    new = socket.socket(family=family, type=kind, proto=protocol)
    for level, option, value in _KEEPALIVE:
        new.setsockopt(level, option, value)
    return new

"""The HTTP connections to one API server, and their credentials, renewed when refused.

Must never retry by itself: it makes one try of one request.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import yarl

from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.credentials import Connection, KubeconfigError
from kubeletpy.version import VERSION

logger = logging.getLogger(__name__)

Observe = Callable[[int | None, str, str, float], None]
"""Told of each try: HTTP code (None: no answer), HTTP method, host, seconds."""

USER_AGENT = f"kubeletpy/{VERSION} ({platform.system().lower()}/{platform.machine()})"
_MAX_CONNECTIONS = 4096
"""A watch holds one as long as it lasts, and pods have a watch for each object they are made of."""
_IDLE_SECONDS = 60
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
)
"""A server that has vanished is noticed within a minute, also by a silent watch."""


class Sessions:
    """One aiohttp session at a time, made when first needed."""

    def __init__(
        self,
        connection: Connection,
        reconnect: Callable[[], Awaitable[Connection]] | None,
        observe: Observe | None,
    ) -> None:
        self.connection = connection
        self._reconnect = reconnect
        self._observe = observe
        self._session: aiohttp.ClientSession | None = None
        self._reloading = asyncio.Lock()
        self._reloaded_at = float("-inf")
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        data: bytes | None,
        headers: dict[str, str],
    ) -> aiohttp.ClientResponse:
        """One try; any HTTP answer is returned.

        Raises:
            Unavailable: no answer.
        """
        session = self._current()
        extra: dict[str, Any] = {}
        if self.connection.server_hostname:
            extra["server_hostname"] = self.connection.server_hostname
        if self.connection.proxy:
            extra["proxy"] = self.connection.proxy
        if self.connection.authorization:
            headers = {**headers, "Authorization": self.connection.authorization}
        url = yarl.URL(self.connection.host + path, encoded=True)
        started = time.perf_counter()
        code: int | None = None
        try:
            response = await session.request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                **extra,
            )
            code = response.status
            return response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            where = f"{method} {self.connection.host}{path.partition('?')[0]}"
            raise errors.Unavailable(f"{where}: {str(error) or type(error).__name__}") from error
        finally:
            if self._observe is not None:
                self._observe(code, method, url.host or "", time.perf_counter() - started)

    def _current(self) -> aiohttp.ClientSession:
        if self._closed:
            raise errors.Unavailable("the client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self.connection.ssl or True,
                limit=_MAX_CONNECTIONS,
                keepalive_timeout=_IDLE_SECONDS,
                socket_factory=_new_socket,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers={"User-Agent": USER_AGENT, "Accept": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
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
                self.connection = await self._reconnect()
            except KubeconfigError as error:
                logger.warning("credentials not renewed", extra={"error": str(error)})
                return False
            await self.reset()
            return True

    async def reset(self) -> None:
        """Drop the session; requests under way in it fail."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """Drop the session for good."""
        self._closed = True
        await self.reset()


def _new_socket(address: Any) -> socket.socket:
    family, kind, protocol, _name, _address = address
    new = socket.socket(family=family, type=kind, proto=protocol)
    for level, option, value in _KEEPALIVE:
        new.setsockopt(level, option, value)
    return new

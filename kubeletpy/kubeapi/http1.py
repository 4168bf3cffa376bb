"""HTTP/1.1 to an API server, by aiohttp: a connection for each request under way, so each watch."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from typing import Any

import yarl
from aiohttp import client
from aiohttp.abc import AbstractResolver
from aiohttp.cookiejar import DummyCookieJar

from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.transport import (
    Attempt,
    NameLookup,
    Response,
    TransportError,
    new_socket,
    why,
)
from kubeletpy.kubeapi.watch_state import HTTP1, MAX_HTTP1_WATCHES, Usage

MAX_CONNECTIONS = 1024
"""A watch holds one as long as it lasts; watches of pods' objects are bounded well below."""
IDLE_SECONDS = 60
_ERRORS = (client.ClientError, TimeoutError, OSError)


class _Resolver(NameLookup, AbstractResolver):
    """For an aiohttp connector."""


class Http1Transport(Component):
    """An aiohttp session (:class:`~kubeletpy.kubeapi.transport.Transport`)."""

    connection: Connection

    def __post_init__(self) -> None:
        if self.connection.ssl is not None:
            # a server that could choose HTTP/2 on one of these would not be understood
            self.connection.ssl.set_alpn_protocols(["http/1.1"])
        self._connector = client.TCPConnector(
            ssl=self.connection.ssl or True,
            limit=MAX_CONNECTIONS,
            keepalive_timeout=IDLE_SECONDS,
            socket_factory=new_socket,
            resolver=_Resolver(),
        )
        self._http = client.ClientSession(
            connector=self._connector,
            cookie_jar=DummyCookieJar(),
            # aiohttp's own decompression does not notice a gzip that is cut off
            auto_decompress=False,
        )
        self._host = self.connection.host
        self._extra: dict[str, Any] = {}
        if self.connection.server_hostname:
            self._extra["server_hostname"] = self.connection.server_hostname
        if self.connection.proxy:
            self._extra["proxy"] = self.connection.proxy
        self._asking = 0
        """Requests whose response has not started."""
        self._answers: weakref.WeakSet[client.ClientResponse] = weakref.WeakSet()

    async def request(self, attempt: Attempt) -> Http1Response:
        """Make one attempt. Raises TransportError."""
        self._asking += 1
        try:
            answer = await self._http.request(
                attempt.method,
                yarl.URL(self._host + attempt.path, encoded=True),
                data=attempt.data,
                headers=attempt.headers,
                timeout=client.ClientTimeout(
                    total=attempt.seconds, sock_connect=attempt.connect_seconds
                ),
                allow_redirects=False,
                **self._extra,
            )
        except _ERRORS as error:
            raise TransportError(why(error)) from error
        finally:
            self._asking -= 1
        self._answers.add(answer)
        return Http1Response(answer)

    @property
    def watch_capacity(self) -> int:
        """Half of what MAX_CONNECTIONS allows."""
        return MAX_HTTP1_WATCHES

    @property
    def usage(self) -> Usage:
        """A connection for each request under way."""
        streams = self._asking + sum(not answer.closed for answer in self._answers)
        return Usage({HTTP1: streams} if streams else {}, streams)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._asking and all(answer.closed for answer in self._answers)

    def retire(self) -> None:
        """Idle connections end by themselves."""

    async def close(self) -> None:
        """Drop the connections; readers of their answers get an error."""
        # the session's own close would leave a reader waiting until its timeout
        for answer in list(self._answers):
            answer.close()
        await self._http.close()


class Http1Response(Response):
    """An answer of aiohttp."""

    def __init__(self, answer: client.ClientResponse) -> None:
        self._answer = answer
        self.status = answer.status
        self.content_length = answer.content_length

    def header(self, name: str) -> str:
        return self._answer.headers.get(name, "")

    async def encoded_chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.content.iter_any():
                yield chunk
        except _ERRORS as error:
            raise TransportError(why(error)) from error

    def close(self) -> None:
        """Drop the response; its connection serves again if the body was read to its end."""
        if self._answer.content.at_eof():
            self._answer.release()
        else:
            self._answer.close()

"""An HTTP server that serves manifests without a socket: it stands in for aiohttp's client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

LATENCY_S = 0.02


@dataclass(slots=True)
class Answer:
    """The server's response."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/yaml"
    cut: bool = False
    """The connection breaks before the end of the body."""


class ManifestServer:
    """Set :attr:`answer` and :attr:`hangs`; without an answer connections are refused."""

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.hangs = False
        self.requested = 0

    def session(self, timeout: aiohttp.ClientTimeout, headers: Mapping[str, str]) -> Session:
        """Stands for aiohttp.ClientSession."""
        return Session(self, timeout)


class Session:
    """The part of aiohttp.ClientSession that the source of static pods uses."""

    def __init__(self, server: ManifestServer, timeout: aiohttp.ClientTimeout) -> None:
        self._server = server
        self._timeout = timeout

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    @asynccontextmanager
    async def get(self, url: str, headers: Any) -> AsyncIterator[Response]:
        """One request."""
        self._server.requested += 1
        async with asyncio.timeout(self._timeout.total):
            await asyncio.sleep(1e6 if self._server.hangs else LATENCY_S)
            if self._server.answer is None:
                raise aiohttp.ClientOSError(111, "Connection refused")
            yield Response(self._server.answer)


class Response:
    """One answer."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.status = answer.status
        self.content_type = answer.content_type
        self.content = self

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The body in pieces."""
        body = self._answer.body
        for start in range(0, len(body), size):
            await asyncio.sleep(0)
            yield body[start : start + size]
        if self._answer.cut:
            raise aiohttp.ClientPayloadError("Response payload is not completed")

"""A client's hijacked connection as streams: it ends once, and aiohttp drops it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from kubeletpy.base.wire import relay


class TlsTransport(asyncio.Transport):
    """A TLS connection of CPython 3.11.2, whose abort() raises after a second close()."""

    def __init__(self) -> None:
        super().__init__()
        self.closes, self.lost = 0, False
        self.protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closes > 0

    def close(self) -> None:
        self.closes += 1
        self._lose()

    def abort(self) -> None:
        if self.closes > 1:
            raise AttributeError("'NoneType' object has no attribute '_abort'")
        self._lose()

    def peer_leaves(self) -> None:
        """The client ends the connection."""
        self.close()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.protocol.connection_lost(None)


@pytest.mark.parametrize("first", ["client", "agent"])
async def test_aiohttp_forgets_a_connection_whoever_ends_it(first: str) -> None:
    forgotten = asyncio.Event()
    client = TlsTransport()
    handler = SimpleNamespace(connection_lost=lambda _: forgotten.set(), set_parser=lambda _: None)
    request = cast(web.Request, SimpleNamespace(transport=client, protocol=handler))
    async with relay.streams(request, b"HTTP/1.1 101 \r\n\r\n", 1 << 16):
        if first == "client":
            client.peer_leaves()
    async with asyncio.timeout(5):
        await forgotten.wait()

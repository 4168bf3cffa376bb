"""A protocol behind a listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from kubeletpy.base.wire.listener import ConnectionLimiter


class Echo(asyncio.Protocol):
    """Sends back what arrives; each client that sends ``k`` is identified as another user."""

    def __init__(self, limiter: ConnectionLimiter, on_lost: Callable[[], None]) -> None:
        self._limiter, self._on_lost = limiter, on_lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if b"k" in data:
            self._limiter.admit_identity(self._transport, str(id(self)))
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()

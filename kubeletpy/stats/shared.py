"""One answer for all simultaneous requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

V = TypeVar("V")

MAX_AGE_S = 1.0


class Shared(Generic[V]):
    """Makes a value on demand and shares it with all callers for a second."""

    def __init__(self, make: Callable[[], Awaitable[V]], max_age: float = MAX_AGE_S) -> None:
        """``max_age`` in seconds from when making it began. Errors are raised and not cached."""
        self._make = make
        self._max_age = max_age
        self._at = 0.0
        self._asked: asyncio.Future[V] | None = None

    async def get(self) -> V:
        """The value."""
        now = asyncio.get_running_loop().time()
        asked = self._asked
        if asked is None or asked.cancelled() or (asked.done() and self._stale(asked, now)):
            asked = self._asked = asyncio.ensure_future(self._make())
            self._at = now
        # one client that goes away must not cancel the answer that others wait for
        return await asyncio.shield(asked)

    def _stale(self, asked: asyncio.Future[V], now: float) -> bool:
        return now - self._at >= self._max_age or asked.exception() is not None

"""One answer for all simultaneous requests."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kubeletpy.base.tasks import cancel_tasks

V = TypeVar("V")

MAX_AGE_S = 1.0
"""Counted from when making the value began."""


class Shared(Generic[V]):
    """Makes a value on demand and shares it with all callers for a second."""

    def __init__(self, make: Callable[[], Awaitable[V]]) -> None:
        """Errors of ``make`` are raised and not cached."""
        self._make = make
        self._at = 0.0
        self._made: asyncio.Future[V] | None = None

    async def close(self) -> None:
        """Cancel the value that is being made."""
        await cancel_tasks((self._made,))

    async def get(self, begun_after: float = -math.inf) -> V:
        """The value, from a making that began after a time of the loop's clock."""
        now = asyncio.get_running_loop().time()
        made = self._made
        if (
            made is None
            or made.cancelled()
            or self._at < begun_after
            or (made.done() and (now - self._at >= MAX_AGE_S or made.exception() is not None))
        ):
            made = self._made = asyncio.ensure_future(self._make())
            self._at = now
        # one client that disconnects must not cancel the answer that others wait for
        return await asyncio.shield(made)

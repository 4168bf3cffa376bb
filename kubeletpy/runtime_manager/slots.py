"""How many sandboxes and containers the node makes at once.

More than a few per core only makes every one of them later. Containers go before sandboxes, so that
in a burst pods get done one after the other instead of all at the end; within each kind it is first
come, first served. Must never hold up a stop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum


class StartKind(IntEnum):
    """What is to be made; the lower value goes first."""

    CONTAINER = 0
    SANDBOX = 1


class StartSlots:
    """A number of places to make something in."""

    def __init__(self, limit: int) -> None:
        """``limit``: at least 1."""
        if limit < 1:
            raise ValueError(f"a node needs at least one start slot, not {limit}")
        self._free = limit
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque())

    @asynccontextmanager
    async def hold(self, kind: StartKind) -> AsyncIterator[None]:
        """Wait for a place and keep it."""
        await self._acquire(kind)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, kind: StartKind) -> None:
        if self._free > 0:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # it was our turn already: somebody else's now
            else:
                self._waiting[kind].remove(turn)
            raise

    def _release(self) -> None:
        for queue in self._waiting:
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1

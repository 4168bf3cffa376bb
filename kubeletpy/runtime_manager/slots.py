"""How many sandboxes and containers the node makes at once.

More than a few per core only makes every one of them later. Containers go before sandboxes, and
sandboxes never take all places, so that in a burst pods get done one after the other instead of all
at the end; within each kind it is first come, first served. Must never hold up a stop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntEnum

from kubeletpy.trace.spans import phase


class StartKind(IntEnum):
    """What is to be made; the lower value goes first."""

    CONTAINER = 0
    SANDBOX = 1


class StartSlots:
    """A number of places to make something in."""

    def __init__(self, limit: int) -> None:
        """``limit``: at least 1; two thirds of them are for sandboxes at most."""
        if limit < 1:
            raise ValueError(f"a node needs at least one start slot, not {limit}")
        self._limits = (limit, max(1, limit * 2 // 3))
        self._held = [0, 0]
        self._waiting: tuple[deque[asyncio.Future[None]], ...] = (deque(), deque())

    @asynccontextmanager
    async def hold(self, kind: StartKind) -> AsyncIterator[None]:
        """Wait for a place and keep it."""
        await self._acquire(kind)
        try:
            yield
        finally:
            self._release(kind)

    def _free(self, kind: StartKind) -> bool:
        return sum(self._held) < self._limits[0] and self._held[kind] < self._limits[kind]

    async def _acquire(self, kind: StartKind) -> None:
        if not self._waiting[kind] and self._free(kind):
            self._held[kind] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[kind].append(turn)
        try:
            with phase("wait for a place to start in"):
                await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(kind)  # it was our turn already: somebody else's now
            raise

    def _release(self, kind: StartKind) -> None:
        self._held[kind] -= 1
        for waiting in StartKind:
            queue = self._waiting[waiting]
            while queue and self._free(waiting):
                turn = queue.popleft()
                if not turn.done():  # else its waiter was cancelled
                    self._held[waiting] += 1
                    turn.set_result(None)

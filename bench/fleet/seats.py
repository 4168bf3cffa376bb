"""How many requests an API server works on at once: priority levels, queues and 429.

A plain form of API Priority and Fairness, with the seats that a server gives to nodes by default.
The server handles 600 requests at once. The level of node heartbeats has 40 shares of 245, and the
level of all other requests of nodes has 30. Levels lend each other nothing here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

REQUESTS_AT_ONCE = 600
SHARES = {"node-high": 40, "system": 30}
ALL_SHARES = 245
QUEUED = 64 * 50
"""Maximum number of waiting requests of a level: queues times their length."""
QUEUED_OF_A_NODE = 6 * 50
"""Maximum number of waiting requests of one flow: its hand of queues times their length."""
LONGEST_WAIT_S = 15.0
"""Maximum time in a queue; a quarter of the server's request timeout."""
RETRY_AFTER_S = 1


class Busy(Exception):
    """429: the level has no seat and no place to wait."""


class Level:
    """The seats of one priority level."""

    def __init__(self, seats: int, queued: int = QUEUED) -> None:
        """``queued``: maximum number of waiting requests."""
        self._free = seats
        self._queued = queued
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._of_node: Counter[str] = Counter()
        self.most_waiting = 0

    @asynccontextmanager
    async def seat(self, node: str) -> AsyncIterator[None]:
        """Occupy a seat. Raises Busy."""
        await self._sit(node)
        try:
            yield
        finally:
            self._stand_up()

    async def _sit(self, node: str) -> None:
        if self._free:
            self._free -= 1
            return
        if len(self._waiting) >= self._queued or self._of_node[node] >= QUEUED_OF_A_NODE:
            raise Busy
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((node, place))
        self._of_node[node] += 1
        self.most_waiting = max(self.most_waiting, len(self._waiting))
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                await place
        except TimeoutError:
            raise Busy from None
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._stand_up()
            raise
        finally:
            self._of_node[node] -= 1

    def _stand_up(self) -> None:
        while self._waiting:
            _, place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


def new_levels(part: float = 1.0) -> dict[str, Level]:
    """The levels that nodes' requests belong to.

    Args:
        part: share of the default seats and queues; with a fifth, 1,000 nodes get limits for 5,000.
    """
    return {
        name: Level(round(REQUESTS_AT_ONCE * share / ALL_SHARES * part), round(QUEUED * part))
        for name, share in SHARES.items()
    }


def level_of(resource: str) -> str:
    """The level of a node's request by plural and subresource."""
    heartbeat = resource in ("leases", "nodes", "nodes/status")
    return "node-high" if heartbeat else "system"

"""How many pulls run at once, and how many start per second.

Pulls wait in order of arrival, whatever is pulled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

from kubeletpy.base.structs import Struct
from kubeletpy.remote.rate import Rate

if TYPE_CHECKING:
    from kubeletpy.images.pull_position import PullPosition


class PullRateExceeded(Exception):
    """registryPullQPS and registryBurst are exhausted: no pull now."""


class Ticket(Struct, eq=False, frozen=True):
    """One pull, by its owner's name for it; two of the same name are two pulls."""

    pod: str
    what: str


class PullQueue:
    """Grants pulls: one at a time, a limited number, or all at once.

    ``parallel``: how many pulls may run together (1: serializeImagePulls), None: no limit.
    ``qps`` and ``burst``: starts per second and in a burst; ``qps`` 0: no limit.
    """

    def __init__(self, *, parallel: int | None, qps: float, burst: int) -> None:
        self._limit = parallel or None
        self._places = asyncio.Semaphore(parallel) if parallel else None
        self._waiting: dict[Ticket, float] = {}
        self._running: dict[Ticket, float] = {}
        self._rate = Rate(qps, max(burst, 1)) if qps > 0 else None

    @asynccontextmanager
    async def place(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        loop = asyncio.get_running_loop()
        self._waiting[ticket] = loop.time()
        try:
            async with self._places or nullcontext():
                del self._waiting[ticket]
                self._running[ticket] = loop.time()
                yield
        finally:
            self._waiting.pop(ticket, None)
            self._running.pop(ticket, None)

    def positions(self) -> Iterator[tuple[Ticket, PullPosition]]:
        """The pulls that are under way, and those that wait, in order."""
        from kubeletpy.images.pull_position import PullPosition  # rarely needed

        running = len(self._running)
        for ticket, since in self._running.items():
            yield ticket, PullPosition(since, None, running, self._limit)
        for ahead, (ticket, since) in enumerate(self._waiting.items()):
            yield ticket, PullPosition(since, ahead, running, self._limit)

    def take_token(self) -> None:
        """Count one request to a registry.

        Raises:
            PullRateExceeded: there were too many.
        """
        if self._rate is not None and not self._rate.takes(asyncio.get_running_loop().time()):
            raise PullRateExceeded("pull QPS exceeded")

"""How many pulls run at once, and how many start per second.

Pulls wait in order of arrival. Must never know what is pulled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class PullRateExceeded(Exception):
    """registryPullQPS and registryBurst are exhausted: no pull now."""


class PullQueue:
    """Grants pulls: one at a time, a limited number, or all at once.

    ``parallel``: how many pulls may run together (1: serializeImagePulls), None: no limit.
    ``qps`` and ``burst``: starts per second and in a burst; ``qps`` 0: no limit.
    """

    def __init__(self, *, parallel: int | None, qps: float, burst: int) -> None:
        self._places = asyncio.Semaphore(parallel) if parallel else None
        self._qps = qps
        self._burst = float(max(burst, 1))
        self._tokens = self._burst
        self._refilled_at: float | None = None

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        if self._places is None:
            yield
            return
        async with self._places:
            yield

    def take_token(self) -> None:
        """Count one request to a registry.

        Raises:
            PullRateExceeded: there were too many.
        """
        if self._qps <= 0:
            return
        now = asyncio.get_running_loop().time()
        if self._refilled_at is not None:
            earned = (now - self._refilled_at) * self._qps
            self._tokens = min(self._burst, self._tokens + earned)
        self._refilled_at = now
        if self._tokens < 1:
            raise PullRateExceeded("pull QPS exceeded")
        self._tokens -= 1

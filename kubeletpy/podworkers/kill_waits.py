"""Waiters for the termination of pods. Must never keep one that gave up."""

from __future__ import annotations

import asyncio


class KillWaits:
    """Waits for the termination of pods, by uid."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, uid: str, seconds: float) -> None:
        """Wait until the pod has terminated. Raises TimeoutError after that many seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, []).append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        finally:
            waiters = self._waiting.get(uid, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiting.pop(uid, None)

    def terminated(self, uid: str) -> None:
        """Wake everyone who waits for this pod."""
        for waiter in self._waiting.pop(uid, ()):
            if not waiter.done():
                waiter.set_result(None)

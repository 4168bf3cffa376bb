"""One at a time on each claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from kubeletpy.resources.dra.model import ClaimKey


class ClaimLocks:
    """A lock for each claim that somebody works on."""

    def __init__(self) -> None:
        self._locks: dict[ClaimKey, _Lock] = {}

    @asynccontextmanager
    async def alone(self, keys: Iterable[ClaimKey]) -> AsyncIterator[None]:
        """Lock these claims against all other work. All callers lock in the same order."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                lock = self._locks.setdefault(key, _Lock())
                lock.users += 1
                stack.callback(self._leave, key, lock)
                await stack.enter_async_context(lock.lock)
            yield

    def _leave(self, key: ClaimKey, lock: _Lock) -> None:
        lock.users -= 1
        if not lock.users:
            del self._locks[key]


class _Lock:
    """The lock of one claim."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0

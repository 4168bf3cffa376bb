"""Answers kept for a while, bounded in number, each loaded once however many wait for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from kubeletpy.base.tasks import cancel_tasks

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Load = Callable[[], Awaitable[tuple[V, float]]]
"""Returns the value and for how many seconds it is valid."""


class ExpiringCache(Generic[K, V]):
    """Evicts the least recently used answers when ``size`` is reached."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[K, tuple[V, float]] = OrderedDict()
        self._under_way: dict[K, asyncio.Future[tuple[V, float]]] = {}

    async def get(self, key: K, load: Load[V]) -> V:
        """The cached answer, or that of ``load``, whose errors are raised and not cached."""
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(key)
        if kept is not None and kept[1] > now:
            self._kept.move_to_end(key)
            return kept[0]
        asked = self._under_way.get(key)
        if asked is None:
            asked = asyncio.ensure_future(load())
            self._under_way[key] = asked
            asked.add_done_callback(lambda done: self._done(key, done))
        # one client that goes away must not cancel the answer that others wait for
        try:
            value, _ = await asyncio.shield(asked)
        finally:
            del asked  # an error refers to this frame, and the future to the error
        return value

    async def close(self) -> None:
        """Cancel the answers that are under way."""
        await cancel_tasks(self._under_way.values())

    def __len__(self) -> int:
        return len(self._kept)

    def _done(self, key: K, done: asyncio.Future[tuple[V, float]]) -> None:
        self._under_way.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self.store(key, *done.result())

    def store(self, key: K, value: V, seconds: float) -> None:
        """Cache an answer that is known from elsewhere."""
        if seconds <= 0:
            return
        self._kept[key] = (value, asyncio.get_running_loop().time() + seconds)
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)

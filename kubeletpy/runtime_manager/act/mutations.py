"""Every call that changes the runtime goes through here, so that none of them is ever forgotten.

A worker may be cancelled while the runtime works. The call then goes on by itself, and the next
sync of that pod first waits for it to end and reads the runtime again. Must never decide what to
call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Mutations:
    """Changes in flight and the time of the last one, by pod uid."""

    def __init__(self, now: Callable[[], int]) -> None:
        """``now``: nanoseconds of the clock that stamps pod statuses."""
        self._now = now
        self._under_way: dict[str, set[asyncio.Task[Any]]] = {}
        self._changed_at: dict[str, int] = {}

    async def finish(self, uid: str, change: Coroutine[Any, Any, T]) -> T:
        """Make a change that is seen through, even if the caller is cancelled meanwhile."""
        task = asyncio.ensure_future(change)
        self._under_way.setdefault(uid, set()).add(task)
        task.add_done_callback(lambda done: self._ended(uid, done))
        try:
            return await asyncio.shield(task)
        finally:
            del task  # its error holds this frame: neither would go by its references alone

    async def interruptible(self, uid: str, change: Coroutine[Any, Any, T]) -> T:
        """Make a change that may be given up; requesting it again continues it."""
        try:
            return await change
        finally:
            self._changed_at[uid] = self._now()

    async def settled(self, uid: str) -> None:
        """Return when nothing is in flight for a pod, whatever the outcome."""
        while tasks := self._under_way.get(uid):
            with span(TraceCall.SETTLE):
                await asyncio.wait(list(tasks))

    def outdated(self, uid: str, observed_at: int) -> bool:
        """Whether a pod's status is older than the last change made to the pod."""
        changed_at = self._changed_at.get(uid)
        return changed_at is not None and observed_at < changed_at

    async def drain(self, timeout: float) -> None:
        """Wait for all calls in flight, at most ``timeout`` seconds; for the agent's shutdown."""
        tasks = [task for tasks in self._under_way.values() for task in tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)

    def forget_except(self, known: Iterable[str]) -> None:
        """Drop what is remembered about pods that the runtime no longer has."""
        keep = set(known)
        for uid in [uid for uid in self._changed_at if uid not in keep]:
            if uid not in self._under_way:
                del self._changed_at[uid]

    def _ended(self, uid: str, task: asyncio.Task[Any]) -> None:
        self._changed_at[uid] = self._now()
        tasks = self._under_way.get(uid)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._under_way[uid]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Any waiter gets it too; if there is none any more, this is its only trace.
            logger.debug("change failed", extra={"pod_uid": uid, "error": str(error)})

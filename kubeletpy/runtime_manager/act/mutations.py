"""Calls that change the runtime: none is ever forgotten, and only a few are made at a time.

A worker may be canceled while the runtime works. The call then goes on by itself, and the next sync
of that pod first waits for it to end and reads the runtime again (:class:`Mutations`).
:class:`Slots` limit how much is created or stopped at once. Must never decide what to call.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Backlog
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.runtime_manager.protocol import ReadPod

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Mutations(Component):
    """Keeps the changes in flight and the time of the last one, by pod uid."""

    # Returns nanoseconds of the clock that stamps pod statuses.
    now: Callable[[], int]

    def __post_init__(self) -> None:
        self._under_way: dict[str, set[asyncio.Task[Any]]] = {}
        self._changed_at: dict[str, int] = {}

    async def finish(self, uid: str, change: Coroutine[Any, Any, T]) -> T:
        """Make a change that is completed even if the caller is canceled meanwhile."""
        task = asyncio.ensure_future(change)
        self._under_way.setdefault(uid, set()).add(task)
        task.add_done_callback(lambda done: self._ended(uid, done))
        try:
            return await asyncio.shield(task)
        finally:
            del task  # its error holds this frame: neither would go by its references alone

    @contextmanager
    def changing(self, uid: str) -> Iterator[None]:
        """Note the end of a change that may be canceled; requesting it again continues it."""
        try:
            yield
        finally:
            self._changed_at[uid] = self.now()

    async def current(self, status: PodRuntimeStatus, read: ReadPod) -> PodRuntimeStatus:
        """The status to decide from: the given one, unless its pod was changed since.

        Waits until nothing is in flight for the pod. Raises CRIError.
        """
        await self.settled(status.uid)
        if not self.outdated(status.uid, status.observed_at):
            return status
        return await read(status.uid, status.name, status.namespace)

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
        self._changed_at[uid] = self.now()
        tasks = self._under_way.get(uid)
        if tasks is not None:
            tasks.discard(task)
            if not tasks:
                del self._under_way[uid]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Any waiter gets it too; if there is none any more, this is its only trace.
            logger.debug("change failed", extra={"pod_uid": uid, "error": str(error)})


# Slots: how many sandboxes and containers are created or stopped at the same time


class StartKind(IntEnum):
    """Kind of object to create; the lower value goes first."""

    CONTAINER = 0
    SANDBOX = 1


class StopKind(IntEnum):
    """Kind of object to stop; the lower value goes first."""

    SANDBOX = 0
    CONTAINER = 1


_Waiter = asyncio.Future[bool]
"""Its result is True when a slot has become free, False to go on without one."""
HANDOVER_S = 0.002
"""Maximum seconds from the end of a pod's containers to the stop of its sandbox."""
STOP_AT_MOST_S = {StopKind.SANDBOX: 1.0, StopKind.CONTAINER: 0.1}
"""Seconds after which a stop no longer keeps its slot: a container may use its whole grace period,
and a call may hang."""
STOP_WAITS_AT_MOST_S = 2.0
"""Seconds that a container waits for its signal: hundreds of slow stops must not add up."""


class Slots(Component):
    """A limited number of slots for two kinds of work.

    More than a few per core only makes all of it later. Work that completes a pod goes first: its
    containers before other pods' sandboxes, its sandbox's stop before other pods' containers. Work
    that only begins a pod never takes all slots, so that in a burst pods are finished one after
    the other instead of all at the end. Each kind is served in order of arrival.
    """

    wait_name: ClassVar[TraceCall]
    """Name of the wait for a slot in traces."""
    linger: ClassVar[float] = 0.0
    """Seconds until a released slot goes to a waiter: whoever released it may need it at once for
    the next step."""
    # At least 1; the second kind gets two thirds of them at most.
    limit: int
    # Counts the pods that wait for a slot.
    backlog: Backlog

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"a node needs at least one slot, not {self.limit}")
        self._limits = (self.limit, max(1, self.limit * 2 // 3))
        self._held = [0, 0]
        self._waiting: tuple[deque[_Waiter], ...] = (deque(), deque())

    @asynccontextmanager
    async def slot(
        self, kind: int, at_most: float = math.inf, patience: float = math.inf
    ) -> AsyncIterator[None]:
        """Wait for a slot, at most ``patience`` seconds, and keep it for ``at_most`` seconds.

        The block also runs without one, once the wait is over.
        """
        kept = [kind] if await self._acquire(kind, patience) else []

        def give_back() -> None:
            if kept:
                self._release(kept.pop())

        loop = asyncio.get_running_loop()
        timer = None if math.isinf(at_most) else loop.call_later(at_most, give_back)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            give_back()

    def _free(self, kind: int) -> bool:
        return sum(self._held) < self._limits[0] and self._held[kind] < self._limits[kind]

    async def _acquire(self, kind: int, patience: float) -> bool:
        """Wait for a slot; returns whether it got one."""
        if not self._waiting[kind] and self._free(kind):
            self._held[kind] += 1
            return True
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        self._waiting[kind].append(waiter)
        timer = None if math.isinf(patience) else loop.call_later(patience, _go_without, waiter)
        try:
            with span(self.wait_name), self.backlog.waiting():
                return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self._release(kind)  # the slot was ours already: pass it on
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _release(self, kind: int) -> None:
        self._held[kind] -= 1
        if self.linger and any(self._waiting):
            asyncio.get_running_loop().call_later(self.linger, self._wake_waiting)
        else:
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        for waiting in range(len(self._waiting)):
            queue = self._waiting[waiting]
            while queue and self._free(waiting):
                waiter = queue.popleft()
                if not waiter.done():  # else it was canceled, or waits no more
                    self._held[waiting] += 1
                    waiter.set_result(True)


def _go_without(waiter: _Waiter) -> None:
    if not waiter.done():
        waiter.set_result(False)


class StartSlots(Slots):
    """Slots to create something in, by StartKind."""

    wait_name = TraceCall.START_PLACE


class StopSlots(Slots):
    """Slots to stop something in, by StopKind.

    A start never holds up a stop, and a slow stop does not hold up others for long. When the
    machine shuts down, a signal that is sent late costs a container part of its grace period.
    """

    wait_name = TraceCall.STOP_PLACE
    linger = HANDOVER_S

    def __post_init__(self) -> None:
        super().__post_init__()
        self._hurry = False

    def stopping(self, kind: StopKind) -> AbstractAsyncContextManager[None]:
        """Keep a slot while one object of a kind is stopped; containers only wait so long."""
        patience = STOP_WAITS_AT_MOST_S if kind is StopKind.CONTAINER else math.inf
        return self.slot(kind, STOP_AT_MOST_S[kind], patience)

    def hurry(self, on: bool) -> None:
        """Whether the machine shuts down: then no stop waits, as a late one gets no grace."""
        self._hurry = on
        if on:
            for queue in self._waiting:
                while queue:
                    _go_without(queue.popleft())

    def _free(self, kind: int) -> bool:
        return self._hurry or super()._free(kind)

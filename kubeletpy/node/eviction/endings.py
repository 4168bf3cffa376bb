"""Ends pods: for the node's sake one at a time per condition, for limits of their own several.

Whatever a pod is ended for, it frees memory and process ids when it stops, and the disk when it is
ended: until then no other pod is evicted. Must never delay observations, and must not count
a pod as ended while its data is still on the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.node.eviction.decide import Condition
from kubeletpy.node.eviction.ranking import Awaited
from kubeletpy.node.eviction.signal_observer import SignalObserver
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import KillOptions

log = logging.getLogger(__name__)

CLEANUP_S = 30.0
"""How long to wait for an evicted pod to end, volumes included.

Source: docs/reference/constants.csv: pod cleanup wait.
"""
CLEAR_AGAIN_S = 1.0
"""Between two attempts to remove what an evicted pod left behind."""
STOPPING_S = 3.0
"""How long memory and process ids wait for a pod to stop that ends for something else."""
FAILED_S = 1.0
"""Until another pod may go for the same condition after one that could not be ended."""
UNREPORTED_S = 5.0
"""How long its dead containers are kept so that the API learns how they ended.

After that only the agent has the record. Otherwise the disk would stay full while the API is down,
and one pod after another would be evicted for nothing. The kubelet does not wait at all.
"""


class Clear(Protocol):
    """Removes what a pod (by uid) that is over left in the runtime."""

    async def __call__(self, uid: str, *, unreported: bool) -> bool:
        """Whether nothing is left. ``unreported``: also ends that the API does not show yet."""


class Ending(Struct, frozen=True):
    """A pod that is being evicted.

    Attributes:
        condition: None: for a limit of its own.
        hard: for a hard threshold.
        awaited: what is freed behind the agent's back.
    """

    pod: Pod
    condition: Condition | None
    options: KillOptions
    hard: bool = True
    awaited: Awaited | None = None


class _Going(Struct):
    """An ending under way. ``stops_until``: event-loop seconds, until its containers have stopped
    or are no longer waited for.
    """

    ending: Ending
    stops_until: float

    def holds_up(self, condition: Condition, now: float, *, hard: bool) -> bool:
        """Whether what is to be done about a condition has to wait for it."""
        if hard and not self.ending.hard:
            return False
        same = self.ending.condition is condition
        return same or condition is Condition.DISK or now < self.stops_until


class Endings(Component):
    """Ends pods, each in its own task."""

    observer: SignalObserver
    kill: Callable[[Pod, KillOptions], Awaitable[None]]
    """Ends a pod and waits for it; raises TimeoutError when that takes long."""
    is_over: Callable[[str], bool]
    """Whether everything of a pod (by uid) has stopped and is cleaned up."""
    clear: Clear
    """Removes what such a pod left in the runtime."""
    ended: Callable[[], None]
    """Called when one has stopped, is over, or is given up."""

    def __post_init__(self) -> None:
        self._going: dict[asyncio.Task[None], _Going] = {}
        self._stuck: set[str] = set()
        self._stuck_over_limits: set[str] = set()
        self._finished: dict[str, asyncio.Event] = {}

    def is_busy(self, condition: Condition, *, hard: bool) -> bool:
        """Whether pods are ending and such a threshold of this condition has to wait for them."""
        now = asyncio.get_running_loop().time()
        return any(going.holds_up(condition, now, hard=hard) for going in self._going.values())

    @property
    def over_limits(self) -> set[str]:
        """The pods that are ending for limits of their own, by uid."""
        endings = (going.ending for going in self._going.values())
        return {each.pod.uid for each in endings if each.condition is None}

    def is_ending_for_limit(self, uid: str) -> bool:
        """Whether a pod is ending for a limit of its own, or did not end in time."""
        return uid in self._stuck_over_limits or uid in self.over_limits

    def forget_others(self, uids: Collection[str]) -> None:
        """Forget pods that were removed."""
        self._stuck_over_limits &= set(uids)

    def stuck(self, active: Collection[str]) -> set[str]:
        """Which of these pods did not end in time: others are evicted first."""
        self._stuck &= set(active)
        return self._stuck

    def pod_finished(self, uid: str) -> None:
        """Note that a pod has ended and left nothing. Never blocks."""
        if uid in self._finished:
            self._finished[uid].set()

    def begin(self, ending: Ending) -> None:
        """End a pod. Never blocks."""
        going = _Going(ending, asyncio.get_running_loop().time() + STOPPING_S)
        task = asyncio.create_task(self._end(going), name=f"evict-{ending.pod.uid}")
        self._going[task] = going

    async def close(self) -> None:
        """Stop waiting for all of them."""
        await cancel_tasks(self._going)

    async def _end(self, going: _Going) -> None:
        ending = going.ending
        pod, awaited = ending.pod, ending.awaited
        finished = self._finished.setdefault(pod.uid, asyncio.Event())
        problem = "evicted pod takes longer than its grace"
        try:
            async with asyncio.timeout(CLEANUP_S):
                await self._stop(going)
                before = None if awaited is None else await self.observer.left(awaited.signal)
                if not self.is_over(pod.uid):
                    await finished.wait()
                problem = "the disk is still held by what an evicted pod has left"
                if ending.condition in (None, Condition.DISK):
                    await self._all_cleared(pod.uid)
                if awaited is not None:
                    await self.observer.settled(awaited, before)
        except TimeoutError:
            log.warning(problem, extra={"pod": pod.key})
            self._stuck.add(pod.uid)
            if ending.condition is None:
                self._stuck_over_limits.add(pod.uid)
        except Exception:  # the boundary of one pod's end: the node's next round goes on
            log.exception("pod could not be evicted; trying again", extra={"pod": pod.key})
            await asyncio.sleep(FAILED_S)
        finally:
            self._finished.pop(pod.uid, None)
            if (task := asyncio.current_task()) is not None:
                self._going.pop(task, None)
            self.ended()

    async def _stop(self, going: _Going) -> None:
        ending = going.ending
        try:
            await self.kill(ending.pod, ending.options)
        except TimeoutError:
            # its worker goes on: another pod that a runtime cannot stop either would be no better
            log.warning("evicted pod has not stopped in time", extra={"pod": ending.pod.key})
            return
        going.stops_until = float("-inf")
        self.ended()

    async def _all_cleared(self, uid: str) -> None:
        """Wait, so that the next pod is not judged by a disk that this one still fills."""
        loop = asyncio.get_running_loop()
        impatient = loop.time() + UNREPORTED_S
        while True:
            again = loop.time() + CLEAR_AGAIN_S
            if await self.clear(uid, unreported=loop.time() >= impatient):
                return
            await asyncio.sleep(again - loop.time())

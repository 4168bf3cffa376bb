"""Ends the node's pods when the machine is about to go down, and delays the shutdown meanwhile.

:mod:`.plan` decides which pod ends when; this only acts. First node and pods are reported as not
ready, so that Services send them no more requests. Then the pods end, group after group, and at
last the API gets what has become of them. It must never delay a shutdown for longer than the
configured periods, nor after all that is done. Source: docs/reference/behaviour.md, q.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.errors import DBusError
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, EventRecorder, node_reference
from kubeletpy.node.shutdown.logind import Logind, NoLogind
from kubeletpy.node.shutdown.plan import (
    REPORT_MOST_S,
    Period,
    ShutdownGroup,
    ended_status,
    grace,
    groups,
    looks_completed,
    notice,
)
from kubeletpy.node.shutdown.record import ShutdownRecord, read_record, write_record
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod
from kubeletpy.podworkers.records import KillOptions

log = logging.getLogger(__name__)

RECONNECT_S = 1.0
RECHECK_S = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Waits between checks whether logind has accepted a longer delay."""


class ShutdownManager(Component):
    """Call :meth:`recall`, then run :meth:`run` as a task.

    ``shutting_down`` is for the conditions of the node and its pods, :meth:`over` for admission.
    """

    periods: Sequence[Period]
    """Empty: the feature is off."""
    connect: Callable[[], Awaitable[Logind]]
    pods: Callable[[], Sequence[Pod]]
    """The admitted pods that use the node now."""
    kill: Callable[[Pod, KillOptions], Awaitable[None]]
    """Ends a pod and waits for it; raises TimeoutError."""
    is_finished: Callable[[str], bool]
    """Whether all that a pod (by uid) held is released."""
    changed: Callable[[], None]
    """Called when ``shutting_down`` has changed."""
    recorder: EventRecorder
    clock: Clock
    node_name: str
    root_dir: Path
    is_ready: Callable[[str], bool]
    """Whether a pod (by uid) is Ready."""
    is_reported: Callable[[str], bool]
    """Whether the API has the newest status of a pod (by uid)."""
    reported: Callable[[Collection[str]], Awaitable[None]]
    """Waits until the API has the newest status of the node and of pods (by uid)."""
    unused_volumes: Callable[[], Collection[str]] = tuple
    """The volumes of which something is left here although no pod needs them."""
    torn_down: Callable[[Collection[str]], Awaitable[None]] | None = None
    """Waits until there are no unused volumes but these; None: there never are any."""
    observe: Callable[[str, float], None] = lambda what, at: None
    """Called with ("start" or "end", Unix seconds)."""

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._periods = tuple(self.periods)
        self._record = ShutdownRecord()
        self._earlier: dict[str, float] = {}
        """Pods that the shutdown before this start has ended, see :class:`ShutdownRecord`."""
        self._over = asyncio.Event()
        self._node = node_reference(self.node_name)
        self.shutting_down = False
        self._lock: int | None = None
        self._ending: asyncio.Task[None] | None = None
        self._late: set[asyncio.Task[None]] = set()
        """Endings of pods that were admitted since the shutdown began."""
        self._finished = asyncio.Event()

    @property
    def enabled(self) -> bool:
        """Whether any period is configured."""
        return bool(self._periods)

    def pod_finished(self) -> None:
        """A worker is done with its pod: the group that is being ended may be complete."""
        self._finished.set()

    def over(self) -> Awaitable[None] | None:
        """Wait until the shutdown is canceled; None: there is none.

        A pod that comes during a shutdown waits for that, or for the next boot.
        """
        return None if not self.shutting_down else self._wait_over()

    def admitted(self, pod: Pod) -> None:
        """A pod was admitted: during a shutdown, one that ran under an agent that has restarted."""
        if not self.shutting_down:
            return
        (group,) = groups([pod], self._periods)
        until = self._loop.time() + group.period.seconds
        task = self._loop.create_task(self._end_group(group, until, self.unused_volumes()))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _wait_over(self) -> None:
        await self._over.wait()

    def with_earlier_end(self, pod: Pod, status: api.PodStatus) -> api.PodStatus:
        """The status that a pod's next one follows, which the last shutdown may have ended.

        Its end may not have reached the API before the machine was off.
        """
        at = self._earlier.get(pod.uid)
        if at is None or status.get("phase") in TERMINAL_PHASES:
            return status
        return ended_status(status, at, pod.generation)

    async def recall(self) -> None:
        """Read what the last shutdown has left, which this machine's boot has ended."""
        try:
            self._record = await asyncio.to_thread(read_record, self.root_dir)
        except (OSError, ValueError) as error:
            log.warning("the record of the last shutdown is unreadable", extra={"why": str(error)})
            return
        self._earlier = self._record.ended
        for what, at in (("start", self._record.start), ("end", self._record.end)):
            if at:
                self.observe(what, at)

    async def run(self) -> None:
        """Hold a lock and follow logind until canceled; returns where there is no logind."""
        if not self.enabled:
            return
        reported = connected = False
        try:
            while True:
                try:
                    logind = await self.connect()
                    connected = True
                    try:
                        await self._follow(logind)
                    finally:
                        await logind.close()
                except NoLogind as error:
                    if not connected:  # otherwise the bus is being replaced
                        log.warning("graceful node shutdown is off", extra={"why": str(error)})
                        return
                except (OSError, DBusError, TimeoutError) as error:
                    if not reported:
                        log.warning(
                            "the connection to logind failed; trying again",
                            extra={"why": str(error)},
                        )
                    reported = True
                await asyncio.sleep(RECONNECT_S)
        finally:
            try:
                await cancel_tasks((self._ending, *self._late))
            finally:
                self._release()

    async def _follow(self, logind: Logind) -> None:
        if await logind.shutting_down():
            self._begin()  # the agent was restarted meanwhile: no lock is available
        elif self.shutting_down:
            await self._cancel(logind)  # while the bus was lost
        elif self._lock is None:
            await self._make_time(logind)
            self._lock = await logind.inhibit()
        while True:
            if await logind.next_shutdown():
                self._begin()
            else:
                await self._cancel(logind)

    async def _make_time(self, logind: Logind) -> None:
        """Have logind wait for the sum of all periods."""
        needed = sum(period.seconds for period in self._periods)
        if await logind.max_delay() >= needed:
            return
        await logind.raise_max_delay(needed)
        for wait in RECHECK_S:
            await asyncio.sleep(wait)
            if await logind.max_delay() >= needed:
                return
        log.warning(
            "logind will not delay a shutdown for as long as configured",
            extra={"wanted_s": needed, "logind_s": await logind.max_delay()},
        )

    def _begin(self) -> None:
        if self.shutting_down:
            return
        log.info("the machine shuts down: ending pods")
        served = [pod.uid for pod in self.pods() if self.is_ready(pod.uid)]
        self.shutting_down = True
        self._over.clear()
        self._event("Shutdown manager detected shutdown event")
        self.changed()
        self._ending = self._loop.create_task(self._end(served), name="node-shutdown")

    async def _cancel(self, logind: Logind) -> None:
        self._event("Shutdown manager detected shutdown cancellation")
        log.info("the shutdown of the machine was cancelled")
        await cancel_tasks((self._ending, *self._late))
        self._ending = None
        if self.shutting_down:
            self.shutting_down = False
            self._over.set()
            self.changed()
        if self._lock is None:
            self._lock = await logind.inhibit()

    async def _end(self, served: Collection[str]) -> None:
        """End group after group, then let the machine go down.

        ``served``: the pods (by uid) that were Ready until the shutdown began.
        """
        began, started = self._loop.time(), self.clock.now()
        until = began + sum(period.seconds for period in self._periods)
        unused = self.unused_volumes()
        self.observe("start", started)
        await self._store(ShutdownRecord(started, ended=self._record.ended))
        try:
            pods = self.pods()
            ending = groups(pods, self._periods)
            if ending and served:
                await self._give_notice(served, ending[0].period)
            for group in ending:
                await self._end_group(group, began + group.period.seconds, unused)
                began = self._loop.time()
            await self._settle([pod.uid for pod in pods], unused, until)
            ended = self.clock.now()
            self.observe("end", ended)
            await self._store(replace(self._record, end=ended))
        finally:
            self._release()

    async def _give_notice(self, served: Collection[str], first: Period) -> None:
        """Wait until the API shows node and pods as not ready, and others have acted on it."""
        times = notice(first)
        try:
            async with asyncio.timeout(times.deliver):
                await self.reported(served)
        except TimeoutError:
            log.warning(
                "the API does not show in time that the node is shutting down",
                extra={"pods": len(served), "seconds": times.deliver},
            )
            if not any(map(self.is_reported, served)):
                return  # then nobody acts on it either
        await asyncio.sleep(times.spread)

    async def _end_group(self, group: ShutdownGroup, until: float, unused: Collection[str]) -> None:
        """End pods together and wait until what they held is released.

        Args:
            until: when their period is over, on the event loop's clock.
            unused: volumes that were left here before, for which nobody waits.
        """
        now = self.clock.now()
        misread = {pod.uid: now for pod in group.pods if looks_completed(pod)}
        if misread:
            await self._store(replace(self._record, ended=self._record.ended | misread))
        left = until - self._loop.time()
        tasks = [self._loop.create_task(self._end_pod(pod, left, now)) for pod in group.pods]
        await asyncio.sleep(0)  # all begin to end, even with no time left
        try:
            async with asyncio.timeout_at(until):
                await asyncio.wait(tasks)
                while not all(self.is_finished(pod.uid) for pod in group.pods):
                    self._finished.clear()
                    await self._finished.wait()
                if self.torn_down is not None:  # while the drivers in later groups run
                    await self.torn_down(unused)
        except TimeoutError:
            late = [pod.key for pod in group.pods if not self.is_finished(pod.uid)]
            log.warning(
                "pods or their volumes did not end in time for the shutdown",
                extra={"pods": late[:20], "seconds": group.period.seconds},
            )
        finally:
            await cancel_tasks(tasks)

    async def _end_pod(self, pod: Pod, left: float, now: float) -> None:
        options = KillOptions(
            grace_override=grace(pod, left),
            status_override=lambda status: ended_status(status, now, pod.generation),
        )
        try:
            await self.kill(pod, options)
        except TimeoutError:
            log.warning("pod takes longer than its grace period", extra={"pod": pod.key})

    async def _settle(self, pods: Collection[str], unused: Collection[str], until: float) -> None:
        """Wait until nothing of volumes is left, and the API has the last statuses.

        Not after ``until``; an API server that does not answer gets a few seconds of that.
        """
        try:
            if self.torn_down is not None:
                async with asyncio.timeout_at(until):
                    await self.torn_down(unused)
            async with asyncio.timeout_at(min(until, self._loop.time() + REPORT_MOST_S)):
                await self.reported(pods)
        except TimeoutError:
            log.warning("the shutdown goes on before the API has all that it changed")

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _event(self, message: str) -> None:
        self.recorder.event(self._node, NORMAL, Reason.SHUTDOWN, message)

    async def _store(self, record: ShutdownRecord) -> None:
        self._record = record
        try:
            await asyncio.to_thread(write_record, self.root_dir, record)
        except OSError as error:
            log.warning("the shutdown could not be recorded", extra={"why": str(error)})

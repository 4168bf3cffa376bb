"""Ends the node's pods when the machine is about to go down, and delays the shutdown meanwhile.

:mod:`.plan` decides which pod ends when; this only acts. It must never delay a shutdown for longer
than the configured periods, nor after all pods have ended. When the last shutdown began and ended
is kept over the boot in a file. Source: docs/reference/behaviour.md, q.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from kubeletpy.base.api.times import format_micro_time, parse_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.errors import DBusError
from kubeletpy.base.host.files import write_private
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, EventRecorder, node_reference
from kubeletpy.node.shutdown.logind import Logind, NoLogind
from kubeletpy.node.shutdown.plan import Period, ShutdownGroup, ended_status, grace, groups
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import KillOptions

# The file with the times of the last shutdown.
#
# Written as the machine goes down: completely or not at all. Its name, its keys and that metrics
# show its times after the boot are the kubelet's (docs/reference/behaviour.md, q).

NAME = "graceful_node_shutdown_state"
_KEYS = {"start": "startTime", "end": "endTime"}


def write_times(directory: Path, times: dict[str, float]) -> None:
    """Replace the file.

    ``times``: "start" and, when it is over, "end" (Unix seconds). Raises OSError.
    """
    stored = {_KEYS[what]: format_micro_time(at) for what, at in times.items()}
    write_private(directory / NAME, json.dumps(stored))


def read_times(directory: Path) -> dict[str, float]:
    """The times that :func:`write_times` stored; empty without a file.

    Raises OSError, and ValueError for a file that is no such record.
    """
    try:
        stored = json.loads((directory / NAME).read_bytes())
    except FileNotFoundError:
        return {}
    if not isinstance(stored, dict):
        raise ValueError("it is no object")
    return {what: at for what, key in _KEYS.items() if (at := _seconds(stored.get(key))) > 0}


def _seconds(stored: object) -> float:
    if stored is None:  # the kubelet's value for a time that has not come; or it is the year 1
        return 0.0
    if not isinstance(stored, str):
        raise ValueError(f"a time is no string: {stored!r:.80}")
    return parse_time(stored)


log = logging.getLogger(__name__)

RECONNECT_S = 1.0
RECHECK_S = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Waits between checks whether logind has accepted a longer delay."""


class ShutdownManager(Component):
    """Run :meth:`run` as a task; ``shutting_down`` is for admission and the node's condition."""

    periods: Sequence[Period]
    """Empty: the feature is off."""
    connect: Callable[[], Awaitable[Logind]]
    pods: Callable[[], Sequence[Pod]]
    """The pods that use the node now."""
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
    observe: Callable[[str, float], None] = lambda what, at: None
    """Called with ("start" or "end", Unix seconds)."""

    def __post_init__(self) -> None:
        self._periods = tuple(self.periods)
        self._node = node_reference(self.node_name)
        self.shutting_down = False
        self._lock: int | None = None
        self._ending: asyncio.Task[None] | None = None
        self._finished = asyncio.Event()

    @property
    def enabled(self) -> bool:
        """Whether any period is configured."""
        return bool(self._periods)

    def pod_finished(self) -> None:
        """A worker is done with its pod: the group that is being ended may be complete."""
        self._finished.set()

    async def run(self) -> None:
        """Hold a lock and follow logind until cancelled; returns where there is no logind."""
        if not self.enabled:
            return
        await self._recall()
        reported = False
        try:
            while True:
                try:
                    await self._connect_and_follow()
                except NoLogind as error:
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
                await cancel_tasks((self._ending,))
            finally:
                self._release()

    async def _connect_and_follow(self) -> None:
        logind = await self.connect()
        try:
            await self._follow(logind)
        finally:
            await logind.close()

    async def _follow(self, logind: Logind) -> None:
        if await logind.shutting_down():
            self._begin()  # the agent was restarted meanwhile: no lock is available
        elif self._lock is None and not self.shutting_down:
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
        self.shutting_down = True
        self._event("Shutdown manager detected shutdown event")
        self.changed()
        self._ending = asyncio.get_running_loop().create_task(self._end(), name="node-shutdown")

    async def _cancel(self, logind: Logind) -> None:
        self._event("Shutdown manager detected shutdown cancellation")
        log.info("the shutdown of the machine was cancelled")
        if self._ending is not None:
            await cancel_tasks((self._ending,))
            self._ending = None
        if self.shutting_down:
            self.shutting_down = False
            self.changed()
        if self._lock is None:
            self._lock = await logind.inhibit()

    async def _end(self) -> None:
        """End group after group, then let the machine go down."""
        started = self.clock.now()
        self.observe("start", started)
        await self._store({"start": started})
        try:
            for group in groups(self.pods(), self._periods):
                await self._end_group(group)
            ended = self.clock.now()
            self.observe("end", ended)
            await self._store({"start": started, "end": ended})
        finally:
            self._release()

    async def _end_group(self, group: ShutdownGroup) -> None:
        """End pods together and wait until what they held is released, at most their period."""
        tasks = [
            asyncio.get_running_loop().create_task(self._end_pod(pod, group.period))
            for pod in group.pods
        ]
        await asyncio.sleep(0)  # all begin to end, even with no time left
        try:
            async with asyncio.timeout(group.period.seconds):
                await asyncio.wait(tasks)
                while not all(self.is_finished(pod.uid) for pod in group.pods):
                    self._finished.clear()
                    await self._finished.wait()
        except TimeoutError:
            late = [pod.key for pod in group.pods if not self.is_finished(pod.uid)]
            log.warning(
                "pods did not end in time for the shutdown",
                extra={"pods": late[:20], "seconds": group.period.seconds},
            )
        finally:
            await cancel_tasks(tasks)

    async def _end_pod(self, pod: Pod, period: Period) -> None:
        now = self.clock.now()
        options = KillOptions(
            grace_override=grace(pod, period),
            status_override=lambda status: ended_status(status, now, pod.generation),
        )
        try:
            await self.kill(pod, options)
        except TimeoutError:
            log.warning("pod takes longer than its grace period", extra={"pod": pod.key})

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _event(self, message: str) -> None:
        self.recorder.event(self._node, NORMAL, Reason.SHUTDOWN, message)

    async def _store(self, times: dict[str, float]) -> None:
        try:
            await asyncio.to_thread(write_times, self.root_dir, times)
        except OSError as error:
            log.info("the times of the shutdown could not be stored", extra={"why": str(error)})

    async def _recall(self) -> None:
        """Show the times of the last shutdown, which this machine's boot has ended."""
        try:
            times = await asyncio.to_thread(read_times, self.root_dir)
        except (OSError, ValueError) as error:
            log.info("the times of the last shutdown are unreadable", extra={"why": str(error)})
            return
        for what, at in times.items():
            self.observe(what, at)

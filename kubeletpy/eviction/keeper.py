"""Watches the local storage of pods that have limits, and evicts those that exceed them.

Who has to go is :mod:`.local_storage`'s. Must cost nothing while no running pod has such a limit,
and must never end a pod twice, nor one that is over already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from kubeletpy.api import types as api
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.eviction.local_storage import (
    GRACE_S,
    Limits,
    Verdict,
    evicted_status,
    judge,
    limits_of,
)
from kubeletpy.eviction.next_look import PERIOD_S
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import KillOptions
from kubeletpy.stats.disk_plan import PodStorage

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Pods that are ended at a time: each has to end in time, whatever the others do."""


class Meter(Protocol):
    """Says what pods take of the disk."""

    async def measure(self, wanted: Mapping[str, bool]) -> Mapping[str, PodStorage]:
        """By uid, as far as it is known; ``wanted``: uid -> whether writable layers count."""
        ...

    async def close(self) -> None:
        """Stop measuring."""
        ...


class LocalStorageKeeper:
    """Run :meth:`run` as a task, and notify it of the pods that may run."""

    def __init__(
        self,
        meter: Meter,
        *,
        pod: Callable[[str], Pod | None],
        is_over: Callable[[str], bool],
        kill: Callable[[Pod, KillOptions], Awaitable[None]],
        recorder: EventRecorder,
        evicted: Callable[[str], None],
    ) -> None:
        """Args:
        pod: the newest object by uid; None when it is gone.
        is_over: whether everything of a pod (by uid) has stopped.
        kill: ends a pod and waits for it; raises TimeoutError when that takes long.
        evicted: counts by signal.
        """
        self._meter = meter
        self._pod = pod
        self._is_over = is_over
        self._kill = kill
        self._recorder = recorder
        self._evicted = evicted
        self._known: dict[str, Limits | None] = {}
        """Limits, which never change, of the pods that may run."""
        self._any = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._ending: dict[str, asyncio.Task[None]] = {}
        """Pods that are being evicted, until they are gone."""

    @property
    def busy(self) -> bool:
        """Whether pods are ending that took too much."""
        return any(not task.done() for task in self._ending.values())

    def pods_changed(self, uids: Iterable[str]) -> None:
        """These pods may run now, and no others. Never blocks."""
        found: dict[str, Limits | None] = {}
        for uid in uids:
            if uid in self._known:
                found[uid] = self._known[uid]
            elif (pod := self._pod(uid)) is not None:
                found[uid] = limits_of(pod)
        self._known = found
        for uid in [uid for uid, task in self._ending.items() if uid not in found and task.done()]:
            del self._ending[uid]
        if self._watched():
            self._any.set()
        else:
            self._any.clear()

    async def run(self) -> None:
        """Look now and then until cancelled, as long as there is something to look at."""
        try:
            while True:
                await self._any.wait()
                await asyncio.sleep(PERIOD_S)
                try:
                    await self._look()
                except Exception:  # the boundary of a look: the next one comes all the same
                    log.exception("local storage could not be looked at")
        finally:
            for task in self._ending.values():
                task.cancel()
            await self._meter.close()

    def _watched(self) -> dict[str, Limits]:
        return {
            uid: limits
            for uid, limits in self._known.items()
            if limits is not None and uid not in self._ending and not self._is_over(uid)
        }

    async def _look(self) -> None:
        watched = self._watched()
        if not watched:
            return
        wanted = {uid: limits.of_layers for uid, limits in watched.items()}
        for uid, use in (await self._meter.measure(wanted)).items():
            verdict = judge(watched[uid], use)
            if verdict is None or self._pod(uid) is None or self._is_over(uid):
                continue
            task = asyncio.create_task(self._end(uid, verdict), name=f"evict-{uid}")
            self._ending[uid] = task

    async def _end(self, uid: str, verdict: Verdict) -> None:
        async with self._slots:
            pod = self._pod(uid)
            if pod is None or self._is_over(uid):
                return
            log.warning("pod is evicted", extra={"pod": pod.key, "why": verdict.message.strip()})
            try:
                self._recorder.event(pod_reference(pod), WARNING, Reason.EVICTED, verdict.message)
                self._evicted(verdict.signal)
                await self._kill(pod, _options(verdict))
            except TimeoutError:
                log.warning("evicted pod takes longer than its grace", extra={"pod": pod.key})
            except Exception:  # the boundary of one pod's end: the others', and its next, go on
                log.exception("pod could not be evicted; it is tried again", extra={"pod": pod.key})
                self._ending.pop(uid, None)


def _options(verdict: Verdict) -> KillOptions:
    def status(old: api.PodStatus) -> api.PodStatus:
        return evicted_status(old, verdict)

    return KillOptions(grace_override=GRACE_S, evict=True, status_override=status)

"""The pod lifecycle event generator: finds changes in the runtime by relisting.

Every relist reads two plain lists. A pod is read in full only when the lists show something that
the status cache does not have yet; results of the workers are already there and cost nothing. While
the runtime's own events flow (:mod:`.event_stream`), relists only check that none was missed.
It must never act on a pod: it fills the cache and calls ``on_change``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kubeletpy.base.api.times import format_duration
from kubeletpy.base.clock import Clock, steady_ns
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks, run_together, wait_within
from kubeletpy.metrics.pods import PlegMetrics
from kubeletpy.pods.runtime_status import PodRuntimeStatus, RuntimePodSummary
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.errors import CRIError
from kubeletpy.runtime_manager.protocol import ReadPod
from kubeletpy.syncloop.lifecycle import LifecycleEvent, agrees, diff, summarise

log = logging.getLogger(__name__)

OnChange = Callable[[str, Sequence[LifecycleEvent]], None]
"""Called with (uid, what happened) after the cache has the pod's new status; must not block."""

CONCURRENT_READS = 4

# in seconds; docs/reference/constants.csv: pleg
RELIST_PERIOD_S = 1.0
UNHEALTHY_AFTER_S = 180.0
EVENTS_FIRST_RELIST_S = 5.0
"""While events flow: the first check comes this long after the relist on connecting; the next
ones come at growing intervals, as long as nothing was missed."""
EVENTS_RELIST_PERIOD_S = 300.0
EVENTS_UNHEALTHY_AFTER_S = 600.0


class RelistHealth(Component):
    """Whether the last relist is recent enough for pods to be synced."""

    events_flow: bool = False
    """Whether the runtime reports by itself what happens."""
    last_at: float | None = None
    """Event-loop seconds of the last relist."""

    def error(self) -> str:
        """Why pods can't be watched now; empty when they can."""
        if self.last_at is None:
            return "pleg has yet to be successful"
        threshold = EVENTS_UNHEALTHY_AFTER_S if self.events_flow else UNHEALTHY_AFTER_S
        elapsed = asyncio.get_running_loop().time() - self.last_at
        if elapsed <= threshold:
            return ""
        return (
            f"pleg was last seen active {format_duration(round(elapsed, 3))} ago; "
            f"threshold is {format_duration(round(threshold, 3))}"
        )


class Pleg(Component):
    """Relists, and single pods read on demand."""

    list_pods: Callable[[], Awaitable[list[RuntimePodSummary]]]
    read_pod: ReadPod
    cache: PodStatusCache
    clock: Clock
    on_change: OnChange
    health: RelistHealth
    metrics: PlegMetrics

    def __post_init__(self) -> None:
        self._known: dict[str, RuntimePodSummary] = {}
        self._reads: dict[str, asyncio.Task[None]] = {}
        self._read_again: set[str] = set()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(CONCURRENT_READS)
        self._interval = RELIST_PERIOD_S
        self._broken = False

    # -- the loop ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Relist periodically, and when requested, until cancelled."""
        try:
            while True:
                self._wake.clear()
                missed = await self.relist()
                self._interval = self._next_check(missed)
                await wait_within(self._wake, self._interval)
        finally:
            await cancel_tasks(self._reads.values())

    def events_flow(self, flowing: bool) -> None:
        """The event stream is connected, or has ended; either way a relist follows at once."""
        if flowing == self.health.events_flow:
            return
        self.health.events_flow = flowing
        self._interval = 0.0
        self._wake.set()

    @property
    def has_events(self) -> bool:
        """Whether the runtime reports by itself what happens."""
        return self.health.events_flow

    def relist_soon(self) -> None:
        """Something happened that has no type of its own."""
        self._wake.set()

    def _next_check(self, missed: bool) -> float:
        if not self.health.events_flow:
            return RELIST_PERIOD_S
        if missed or self._interval <= 0.0:
            return EVENTS_FIRST_RELIST_S
        return min(self._interval * 2, EVENTS_RELIST_PERIOD_S)

    # -- one relist --------------------------------------------------------------------------

    async def relist(self) -> bool:
        """Relist once; returns whether anything has changed. Never raises for the runtime."""
        loop = asyncio.get_running_loop()
        start, listed_at = loop.time(), steady_ns()
        try:
            listed = {pod.uid: pod for pod in await self.list_pods()}
        except CRIError as error:
            if not self._broken:
                log.warning("runtime could not be relisted", extra={"error": str(error)})
            self._broken = True
            return True
        changed = [uid for uid, pod in listed.items() if not self._is_known(uid, pod)]
        for uid in {*self._known, *self.cache} - listed.keys():
            self._remove_pod(uid, listed_at)
        if changed:
            left = iter(changed)

            async def update_some() -> None:
                for uid in left:
                    await self._update(listed[uid])

            # a task for each pod of a list of thousands would cost more than the pods do
            await run_together(*(update_some() for _ in changed[:CONCURRENT_READS]))
        self.cache.populated = True
        last_at, now = self.health.last_at, loop.time()
        interval = None if last_at is None else start - last_at
        self.health.last_at = now
        self.metrics.relist_done(now - start, interval, self.clock.now())
        if self._broken:
            log.info("runtime answers relists again")
            self._broken = False
        return bool(changed)

    def _is_known(self, uid: str, pod: RuntimePodSummary) -> bool:
        """Whether a pod is as it was at the last relist, or as the cache already has it."""
        entry = self.cache.get(uid)
        if entry is None or entry.error:
            return False
        if self._known.get(uid) == pod:
            return True
        if agrees(entry.status, pod):
            self._known[uid] = pod
            return True
        return False

    def _remove_pod(self, uid: str, listed_at: int) -> None:
        status = self.cache.status(uid)
        if status is not None and status.observed_at > listed_at:
            return
        old = self._known.pop(uid, None)
        if old is None and status is not None:
            old = summarise(status)
        if self.cache.remove(uid) and old is not None:
            self.on_change(uid, diff(old, None))

    async def _update(self, pod: RuntimePodSummary) -> None:
        old = self._known.get(pod.uid)
        async with self._slots:
            changed = await self._read_pod(pod.uid, pod.name, pod.namespace)
        if changed is None:
            return
        self._known[pod.uid] = pod
        if changed:
            self.on_change(pod.uid, diff(old, pod))

    async def _read_pod(self, uid: str, name: str, namespace: str) -> bool | None:
        """Read one pod into the cache; returns whether it is new to us.

        None: the read failed, or the cache has a later status. The next relist then compares again.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            status = await self.read_pod(uid, name, namespace)
        except CRIError as error:
            self.cache.set_error(PodRuntimeStatus(uid, name, namespace), str(error))
            return None
        self.metrics.pod_relist_duration.observe(loop.time() - start)
        if self.cache.refuses(status):
            return None
        if status.empty:
            return self.cache.remove(uid)
        return self.cache.set(status)

    # -- single pods -------------------------------------------------------------------------

    def read_soon(self, uid: str, name: str, namespace: str) -> None:
        """Read one pod in the background; at most one read per pod runs, at most one waits."""
        if uid in self._reads:
            self._read_again.add(uid)
            return
        task = asyncio.get_running_loop().create_task(self._read_alone(uid, name, namespace))
        self._reads[uid] = task
        task.add_done_callback(lambda _done: self._reads.pop(uid, None))

    async def _read_alone(self, uid: str, name: str, namespace: str) -> None:
        while True:
            self._read_again.discard(uid)
            before = self.cache.status(uid)
            async with self._slots:
                changed = await self._read_pod(uid, name, namespace)
            if changed:
                after = self.cache.status(uid)
                old = None if before is None else summarise(before)
                new = None if after is None else summarise(after)
                self.on_change(uid, diff(old, new))
            if uid not in self._read_again:
                return

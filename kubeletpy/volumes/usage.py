"""Usage and health of volumes of claims, drivers and disks, measured in the background.

No caller waits for a driver or a disk: callers get the last results from memory. Source:
docs/reference/behaviour-storage.md, sr, sr1, ss.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import run_together, wait_until
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.volumes import ClaimNumbers, VolumeStatsMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import (
    MeasuredVolume,
    MountedVolume,
    OperationFailed,
    PublishedOnDisk,
    VolumeStats,
)

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Volumes of one driver, or of one kind without drivers, that are measured at the same time."""
DEFAULT_PERIOD_S = 60.0
"""Between two rounds of health queries, if the configured period is 0 or less."""

Key = tuple[str, str]
"""Pod uid, name of its volume."""
Conditions = Sequence[api.VolumeHealthCondition]


class VolumeMeter(Component):
    """Measures the usage of volumes: when one appears, then once per period plus a jitter.

    A task per volume measures it, and the next measurement starts only after the previous one has
    ended. The jitter is up to half the period. Make it inside a running event loop.
    """

    mounted: Callable[[], Sequence[MountedVolume]]
    """Returns all volumes of pods."""
    query: Callable[[PublishedOnDisk], Awaitable[VolumeStats | None]]
    """Queries the volume's plugin; None: it cannot measure it. Raises OperationFailed."""
    reporter: UsageReporter
    clock: Clock
    period: float
    """Seconds between two measurements of a volume; 0 or less: never."""
    health: bool
    """Gate CSIVolumeHealth: report the condition of volumes whose driver reports it."""
    rng: random.Random

    def __post_init__(self) -> None:
        self._known: dict[Key, MeasuredVolume] = {}
        self._due: dict[Key, float] = {}
        self._under_way: dict[Key, asyncio.Task[None]] = {}
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )
        self._changed = asyncio.Event()

    def poke(self) -> None:
        """Check for due measurements now: pods have gained or lost volumes."""
        self._changed.set()

    def of_pods(self) -> Mapping[str, Sequence[MeasuredVolume]]:
        """The results by pod uid, from memory."""
        by_pod: dict[str, list[MeasuredVolume]] = {}
        for (uid, _), found in self._known.items():
            by_pod.setdefault(uid, []).append(found)
        return by_pod

    async def run(self) -> None:
        """Measure the volumes of pods until canceled."""
        if self.period <= 0:
            return
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._changed.clear()
                next_at = self._start_due_measurements(loop.time())
                await wait_until(self._changed, next_at)
        finally:
            for task in self._under_way.values():
                task.cancel()

    def _start_due_measurements(self, now: float) -> float | None:
        """Start due measurements; returns when to check again."""
        there = {(volume.uid, volume.name): volume for volume in self.mounted()}
        for key in self._due.keys() - there.keys():
            del self._due[key]
        for key, volume in there.items():
            if key not in self._under_way and self._due.get(key, now) <= now:
                self._due[key] = now + self.period * self.rng.uniform(1.0, 1.5)
                task = asyncio.create_task(self._one(key, volume), name="volume usage")
                self._under_way[key] = task
                task.add_done_callback(partial(self._ended, key))
        if removed := self._known.keys() - there.keys():
            for key in removed:
                del self._known[key]
            self.reporter.measured(self._known.values())
        waiting = [due for key, due in self._due.items() if due > now]
        return min(waiting, default=None)

    def _ended(self, key: Key, task: asyncio.Task[None]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]
        self._changed.set()  # it may be due again

    async def _one(self, key: Key, volume: MountedVolume) -> None:
        loop = asyncio.get_running_loop()
        async with self._slots[f"{volume.left.plugin}:{volume.left.driver}"]:
            begun = loop.time()
            try:
                stats = await self.query(volume.left)
            except OperationFailed as error:
                stats = None
                extra = {"volume": volume.left.spec_name, "why": error.message}
                log.debug("volume not measured", extra=extra)
            self.reporter.took(volume.source, loop.time() - begun)
        if key not in self._due:
            return  # it was removed meanwhile
        if stats is not None and not self.health:
            stats = replace(stats, abnormal=None, message="")
        if stats is None or stats == VolumeStats():
            self._known.pop(key, None)
        else:
            found = MeasuredVolume(volume, stats, self.clock.now())
            self._known[key] = found
            if stats.abnormal:
                self.reporter.abnormal(found)
        self.reporter.measured(self._known.values())


class VolumeHealthMonitor(Component):
    """Queries CSI drivers for the health of the volumes that pods use (table sr1).

    A call that fails changes no earlier answer. Make it inside a running event loop.
    """

    mounted: Callable[[], Sequence[MountedVolume]]
    """Returns all volumes of pods."""
    query: Callable[[PublishedOnDisk], Awaitable[Conditions | None]]
    """Calls the driver; None: it does not report health. Raises OperationFailed."""
    changed: Callable[[str], None]
    """Called with the uid of a pod for which another answer came."""
    clock: Clock
    period: float
    """Seconds between two rounds; 0 or less: a minute."""

    def __post_init__(self) -> None:
        self._known: dict[str, dict[str, api.PodVolumeHealth]] = {}
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )

    def of_pod(self, uid: str) -> list[api.PodVolumeHealth]:
        """The latest answer for each volume of a pod whose driver reports health."""
        return list(self._known.get(uid, {}).values())

    async def run(self) -> None:
        """Query drivers until canceled."""
        while True:
            await self.round()
            await asyncio.sleep(self.period if self.period > 0 else DEFAULT_PERIOD_S)

    async def round(self) -> None:
        """Query every volume once, and forget those that were removed."""
        volumes = self.mounted()
        uids = {volume.uid for volume in volumes}
        for uid in self._known.keys() - uids:
            del self._known[uid]
        await run_together(*(self._one(volume) for volume in volumes))

    async def _one(self, volume: MountedVolume) -> None:
        async with self._slots[volume.left.driver]:
            try:
                conditions = await self.query(volume.left)
            except OperationFailed as error:
                extra = {"volume": volume.left.spec_name, "why": error.message}
                log.debug("health of a volume not read; what is known stays", extra=extra)
                return
        if conditions is None:
            return
        of_pod = self._known.setdefault(volume.uid, {})
        known = of_pod.get(volume.name)
        if known is not None and known.get("healthConditions") == list(conditions):
            return
        of_pod[volume.name] = {
            "name": volume.name,
            "healthConditions": list(conditions),
            "lastTransitionTime": format_time(self.clock.now()),
        }
        self.changed(volume.uid)


_NUMBERS = (
    "capacity_bytes",
    "available_bytes",
    "used_bytes",
    "inodes",
    "inodes_free",
    "inodes_used",
)


class UsageReporter(Component):
    """Reports measurements in metrics, and unhealthy volumes in events of their pods."""

    # ``pod`` finds one by uid.
    recorder: EventRecorder
    metrics: VolumeStatsMetrics
    pod: Callable[[str], Pod | None]

    def took(self, source: str, seconds: float) -> None:
        """Record that measuring one volume took ``seconds``."""
        self.metrics.took(source, seconds)

    def abnormal(self, found: MeasuredVolume) -> None:
        """Emit an event of the pod whose volume its driver reports as unhealthy."""
        pod = self.pod(found.volume.uid)
        if pod is not None:
            text = f"Volume {found.volume.name}: {found.stats.message}"
            self.recorder.event(pod_reference(pod), WARNING, Reason.VOLUME_CONDITION_ABNORMAL, text)

    def measured(self, found: Iterable[MeasuredVolume]) -> None:
        """Replace the reported results by the current ones of all volumes."""
        self.metrics.show(
            ClaimNumbers(*each.volume.claim, self._numbers(each.stats))
            for each in found
            if each.volume.claim is not None
        )

    def _numbers(self, stats: VolumeStats) -> dict[str, int]:
        known = {name: getattr(stats, name) for name in _NUMBERS}
        if stats.abnormal is not None:
            known["health_status_abnormal"] = int(stats.abnormal)
        return {name: value for name, value in known.items() if value is not None}

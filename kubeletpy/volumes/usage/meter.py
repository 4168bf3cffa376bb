"""Measures the usage of volumes of claims, drivers and disks in the background.

No caller waits for a driver or a disk: callers get the last results. A task per volume measures it,
and the next measurement starts only after the previous one has ended. A volume is measured when it
appears, and then once per period plus up to half of that as jitter. Source:
docs/reference/behaviour-storage.md, sr.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.on_disk import (
    MeasuredVolume,
    MountedVolume,
    PublishedOnDisk,
    VolumeStats,
)
from kubeletpy.volumes.claims.operation import OperationFailed

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Volumes of one driver, or of one kind without drivers."""

Key = tuple[str, str]
"""Pod uid, name of its volume."""


class UsageListener(Protocol):
    """Receives measurements."""

    def took(self, source: str, seconds: float) -> None:
        """One volume was measured."""
        ...

    def abnormal(self, found: MeasuredVolume) -> None:
        """A driver reports that a volume is unhealthy; called at each measurement."""
        ...

    def measured(self, found: Iterable[MeasuredVolume]) -> None:
        """The current results for all volumes."""
        ...


class VolumeMeter:
    """Measures volumes. Make it inside a running event loop."""

    def __init__(
        self,
        mounted: Callable[[], Sequence[MountedVolume]],
        measure: Callable[[PublishedOnDisk], Awaitable[VolumeStats | None]],
        listener: UsageListener,
        clock: Clock,
        *,
        period: float,
        health: bool,
        rng: random.Random | None = None,
    ) -> None:
        """Args:
        mounted: all volumes of pods.
        measure: queries the volume's plugin; None: it cannot measure it. Raises OperationFailed.
        listener: notified of the results.
        period: seconds between two measurements of a volume; 0 or less: never.
        health: gate CSIVolumeHealth: report the condition of volumes whose driver reports it.
        rng: for jitter.
        """
        self._mounted = mounted
        self._measure = measure
        self._listener = listener
        self._clock = clock
        self._period = period
        self._health = health
        self._rng = rng or random.Random()
        self._known: dict[Key, MeasuredVolume] = {}
        self._due: dict[Key, float] = {}
        self._under_way: dict[Key, asyncio.Task[None]] = {}
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(AT_ONCE)
        )
        self._changed = asyncio.Event()

    def poke(self) -> None:
        """Volumes came or went."""
        self._changed.set()

    def of_pods(self) -> Mapping[str, Sequence[MeasuredVolume]]:
        """The results by pod uid, from memory."""
        by_pod: dict[str, list[MeasuredVolume]] = {}
        for (uid, _), found in self._known.items():
            by_pod.setdefault(uid, []).append(found)
        return by_pod

    async def run(self) -> None:
        """Measure until cancelled."""
        if self._period <= 0:
            return
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._changed.clear()
                next_at = self._start_due_measurements(loop.time())
                try:
                    async with asyncio.timeout_at(next_at):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._under_way.values():
                task.cancel()

    def _start_due_measurements(self, now: float) -> float | None:
        """Start due measurements; returns when to check again."""
        there = {(volume.uid, volume.name): volume for volume in self._mounted()}
        for key in self._due.keys() - there.keys():
            del self._due[key]
        for key, volume in there.items():
            if key not in self._under_way and self._due.get(key, now) <= now:
                self._due[key] = now + self._period * self._rng.uniform(1.0, 1.5)
                task = asyncio.create_task(self._one(key, volume), name="volume usage")
                self._under_way[key] = task
                task.add_done_callback(partial(self._ended, key))
        if gone := self._known.keys() - there.keys():
            for key in gone:
                del self._known[key]
            self._listener.measured(self._known.values())
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
                stats = await self._measure(volume.left)
            except OperationFailed as error:
                stats = None
                extra = {"volume": volume.left.spec_name, "why": error.message}
                log.debug("volume not measured", extra=extra)
            self._listener.took(volume.source, loop.time() - begun)
        if key not in self._due:
            return  # it was removed meanwhile
        if stats is not None and not self._health:
            stats = replace(stats, abnormal=None, message="")
        if stats is None or stats == VolumeStats():
            self._known.pop(key, None)
        else:
            found = MeasuredVolume(volume, stats, self._clock.now())
            self._known[key] = found
            if stats.abnormal:
                self._listener.abnormal(found)
        self._listener.measured(self._known.values())

"""Measures file systems and trees, at most about once a minute each, off the event loop.

A tree that takes long is measured seldom, so that no pod can make the agent spend more than a part
in twenty of its time on counting files. One tree is walked at a time.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kubeletpy.clock import Clock
from kubeletpy.host.patient_threads import PatientThreads
from kubeletpy.stats import proc_text
from kubeletpy.stats.group_files import read_text
from kubeletpy.stats.tree_walk import walk
from kubeletpy.stats.usage import FsSpace, TreeUse

log = logging.getLogger(__name__)

SECONDS_BETWEEN = 60.0
IDLE_SHARE = 20
"""A tree is left alone for this many times what measuring it took."""
PATIENCE_S = 2.0
"""How long an answer waits for trees."""
MAX_TREES = 100_000
"""A pod may use some ten thousand volumes."""
BATCH = 25
"""Trees that are measured in one go of a thread."""


@dataclass(frozen=True, slots=True)
class _Known:
    use: TreeUse | None
    next_at: float


class DiskMeter:
    """Remembers what trees take. ``close`` it with the event loop it was made in."""

    def __init__(
        self, clock: Clock, seconds_between: float = SECONDS_BETWEEN, *, patient: bool = False
    ) -> None:
        """Args:
        seconds_between: negative: trees are never measured (volumeStatsAggPeriod).
        patient: an answer waits also for trees that are only due to be measured again.
        """
        self._clock = clock
        self._between = seconds_between
        self._patient = patient
        self._known: dict[str, _Known] = {}
        self._work: asyncio.Task[None] | None = None
        self._closed = False
        self._thread = PatientThreads(1)
        """Apart: pods make trees that take minutes, and pods start by other threads."""

    async def measure(self, paths: Iterable[str]) -> dict[str, TreeUse]:
        """What trees take, as far as it is known within PATIENCE_S; what is not there is left out.

        All others are forgotten: the paths are all that matter.
        """
        if self._between < 0:
            return {}
        wanted = list(dict.fromkeys(paths))[:MAX_TREES]
        kept = set(wanted)
        for gone in [path for path in self._known if path not in kept]:
            del self._known[gone]
        now = asyncio.get_running_loop().time()
        due = [p for p in wanted if (k := self._known.get(p)) is None or k.next_at <= now]
        if due and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._measure(due), name="disk-usage")
        new = any(path not in self._known for path in wanted)
        if self._work is not None and (new or (due and self._patient)):
            await asyncio.wait({self._work}, timeout=PATIENCE_S)
        return {
            path: known.use
            for path in wanted
            if (known := self._known.get(path)) is not None and known.use is not None
        }

    async def _measure(self, paths: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for start in range(0, len(paths), BATCH):
            some = paths[start : start + BATCH]
            self._known |= await loop.run_in_executor(self._thread, self._some, some, loop.time)

    def _some(self, paths: list[str], time: Callable[[], float]) -> dict[str, _Known]:
        found: dict[str, _Known] = {}
        for path in paths:
            if self._closed:
                break
            began = time()
            use = self._one(path)
            ended = time()
            if use is not None and use.at_least:
                log.debug("a tree has more files than are counted", extra={"path": path})
            wait = max(self._between, (ended - began) * IDLE_SHARE)
            found[path] = _Known(use, ended + wait)
        return found

    def _one(self, path: str) -> TreeUse | None:
        found = walk(path, stopped=lambda: self._closed)
        if found is None:
            return None
        at = int(self._clock.now() * 1e9)
        return TreeUse(at, found.used, found.inodes, space(path, at), found.at_least)

    async def close(self) -> None:
        """Stop, in the middle of a tree if need be."""
        self._closed = True
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait({self._work})


def space(path: str, at: int) -> FsSpace | None:
    """The file system of a path; None when it can not be asked."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return FsSpace(
        at,
        capacity=found.f_blocks * found.f_frsize,
        available=found.f_bavail * found.f_frsize,
        free=found.f_bfree * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_ffree,
    )


def space_with_device(path: str, at: int) -> FsSpace | None:
    """As :func:`space`, with the block device (``/dev/vda``) where the file system has one."""
    found = space(path, at)
    if found is None:
        return None
    try:
        number = Path(path).stat().st_dev
    except OSError:
        return found
    names = proc_text.devices(read_text("/proc/diskstats"))
    return replace(found, device=names.get((os.major(number), os.minor(number)), ""))

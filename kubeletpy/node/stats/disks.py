"""Measures file systems and trees, at most about once a minute each, off the event loop.

A slow tree is measured rarely, so that no pod can make the agent spend more than a twentieth of its
time counting files. One tree is walked at a time; one with very many files is counted separately,
with pauses, so that others are measured meanwhile and nothing hides behind empty files.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.errors import NoThread
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.group_files import read_text
from kubeletpy.node.stats.tree_walk import walk
from kubeletpy.node.stats.usage import FsSpace, TreeUse

log = logging.getLogger(__name__)

SECONDS_BETWEEN = 60.0
IDLE_SHARE = 20
"""A tree is not measured again for this many times as long as measuring it took."""
PATIENCE_S = 2.0
"""How long an answer waits for trees."""
MAX_TREES = 100_000
"""A pod may use some ten thousand volumes."""
BATCH = 25
"""Trees measured in one turn of a thread."""
QUICK_ENTRIES = 1_000_000
"""A tree with more entries (some seconds of work) is counted separately."""
PAUSES = 4
"""A separate walk rests for this many times as long as it works."""


class _MeasuredTree(Struct, frozen=True):
    use: TreeUse | None
    next_at: float


class DiskMeter:
    """Remembers the size of trees. ``close`` it within the event loop it was made in."""

    def __init__(
        self, clock: Clock, seconds_between: float = SECONDS_BETWEEN, *, patient: bool = False
    ) -> None:
        """Args:
        seconds_between: negative: trees are never measured (volumeStatsAggPeriod).
        patient: an answer also waits for trees that are only due for another measurement.
        """
        self._clock = clock
        self._between = seconds_between
        self._patient = patient
        self._known: dict[str, _MeasuredTree] = {}
        self._work: asyncio.Task[None] | None = None
        self._closed = threading.Event()
        self._thread = PatientThreads(1)
        """A thread of its own: trees may take minutes, and must not delay the start of pods."""
        self._large: dict[str, float] = {}
        """Trees still to be counted in full -> seconds that the quick walk took."""
        self._large_work: asyncio.Task[None] | None = None
        self._large_thread = PatientThreads(1)

    async def measure(self, paths: Iterable[str]) -> dict[str, TreeUse]:
        """The size of trees, as far as known within PATIENCE_S; missing trees are omitted.

        All other trees are forgotten: pass all paths that matter.
        """
        if self._between < 0:
            return {}
        wanted = list(dict.fromkeys(paths))[:MAX_TREES]
        kept = set(wanted)
        for gone in [path for path in self._known if path not in kept]:
            del self._known[gone]
            self._large.pop(gone, None)
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

    def pending(self, paths: Iterable[str]) -> set[str]:
        """Those of these paths that have not been measured yet."""
        return set() if self._between < 0 else {path for path in paths if path not in self._known}

    async def _measure(self, paths: list[str]) -> None:
        loop = asyncio.get_running_loop()
        for start in range(0, len(paths), BATCH):
            some = paths[start : start + BATCH]
            try:
                self._known |= await loop.run_in_executor(self._thread, self._some, some, loop.time)
            except NoThread as error:  # they stay due
                log.debug("trees are not measured", extra={"why": str(error)})
                return
            if self._large and (self._large_work is None or self._large_work.done()):
                self._large_work = asyncio.create_task(self._count_large(), name="large-trees")

    def _some(self, paths: list[str], time: Callable[[], float]) -> dict[str, _MeasuredTree]:
        found: dict[str, _MeasuredTree] = {}
        for path in paths:
            if self._closed.is_set():
                break
            began = time()
            use = self._one(path, QUICK_ENTRIES, self._closed.is_set)
            ended = time()
            if use is not None and use.at_least and not use.beyond:
                self._large[path] = ended - began
                found[path] = _MeasuredTree(self._better(path, use), math.inf)
                continue
            found[path] = _MeasuredTree(use, self._next_measurement_at(began, ended))
        return found

    def _better(self, path: str, part: TreeUse) -> TreeUse:
        """A partial count is worth less than the last full one, unless it is larger."""
        before = self._known.get(path)
        if before is None or before.use is None or (part.used or 0) > (before.use.used or 0):
            return part
        return before.use

    def _next_measurement_at(self, began: float, ended: float) -> float:
        return ended + max(self._between, (ended - began) * IDLE_SHARE)

    async def _count_large(self) -> None:
        loop = asyncio.get_running_loop()
        while self._large and not self._closed.is_set():
            path = next(iter(self._large))
            took = self._large.pop(path)
            try:
                known = await loop.run_in_executor(
                    self._large_thread, self._whole, path, took, loop.time
                )
            except NoThread as error:
                self._large[path] = took
                log.debug("a large tree is not counted", extra={"why": str(error)})
                return
            if path in self._known:
                self._known[path] = known

    def _whole(self, path: str, took: float, time: Callable[[], float]) -> _MeasuredTree:
        """Count a tree to its end; ``took`` seconds have been spent on it already."""
        worked, since = took, time()

        def stopped() -> bool:
            nonlocal worked, since
            spent = time() - since
            worked += spent
            self._closed.wait(spent * PAUSES)
            since = time()
            return self._closed.is_set() or path not in self._known

        use = self._one(path, None, stopped)
        now = time()
        return _MeasuredTree(use, self._next_measurement_at(now - worked, now))

    def _one(
        self, path: str, max_entries: int | None, stopped: Callable[[], bool]
    ) -> TreeUse | None:
        found = walk(path, max_entries=max_entries, stopped=stopped)
        if found is None:
            return None
        if found.beyond:
            log.debug("a tree can't be counted", extra={"path": path})
        at = int(self._clock.now() * 1e9)
        return TreeUse(
            at, found.used, found.inodes, space(path, at), found.at_least, beyond=found.beyond
        )

    async def close(self) -> None:
        """Stop, in the middle of a tree if necessary."""
        self._closed.set()
        await cancel_tasks((self._work, self._large_work))


def space(path: str, at: int) -> FsSpace | None:
    """The file system of a path; None when it can't be queried."""
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
    """Like :func:`space`, with the block device (``/dev/vda``) where the file system has one."""
    found = space(path, at)
    if found is None:
        return None
    try:
        number = Path(path).stat().st_dev
    except OSError:
        return found
    names = proc_text.devices(read_text("/proc/diskstats"))
    return replace(found, device=names.get((os.major(number), os.minor(number)), ""))

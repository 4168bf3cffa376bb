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
import stat
import threading
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.errors import NoThread
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.group_files import read_text
from kubeletpy.node.stats.usage import FsSpace, TreeUse

# One directory tree, in bounded steps. Blocking.
#
# Containers write to these trees and change them during the walk. So no link is followed and no
# other file system is entered. A directory is opened by name relative to the open one, and left
# by ``..`` only if that still leads back to its parent. A file with several links counts once.
# Limits are enforced by these numbers, so nothing may hide behind a bound: a walk that ends early
# states whether continuing would help (``at_least``) or not (``beyond``).

MAX_PENDING_BYTES = 64 << 20
"""Names of directories still to be entered: a quarter of a million of the longest."""
MAX_LINKED = 100_000
"""Files with several links to remember."""
MOVED_AGAIN = 3
"""Walks abandoned because a directory was moved meanwhile, before the tree is declared
uncountable."""
STOP_EVERY = 1024
"""Entries between two checks of whether to continue."""
_BLOCK = 512
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class Walked(Struct):
    """The result of a walk: bytes and inodes.

    Attributes:
        at_least: there was more than was counted.
        beyond: and it can't be counted: there are more directories than can be remembered, or they
            keep moving.
    """

    used: int = 0
    inodes: int = 0
    at_least: bool = False
    beyond: bool = False
    _linked: set[int] = field(default_factory=set)

    def count(self, entry: os.stat_result) -> None:
        """Count one file or directory."""
        if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
            if entry.st_ino in self._linked:
                return
            if len(self._linked) >= MAX_LINKED:
                self.used += entry.st_blocks * _BLOCK // entry.st_nlink
                return
            self._linked.add(entry.st_ino)
        self.used += entry.st_blocks * _BLOCK
        self.inodes += 1


class _Moved(Exception):
    """A directory is no longer where it was entered."""


def walk(
    path: str, *, max_entries: int | None = None, stopped: Callable[[], bool] = lambda: False
) -> Walked | None:
    """The size of the tree at ``path``, which may be a file. None when nothing is there.

    Args:
        max_entries: after this many the rest is skipped; None: no limit.
        stopped: checked now and then; once true, the rest is skipped.
    """
    found: Walked | None = None
    for _ in range(MOVED_AGAIN):
        try:
            return _once(path, max_entries, stopped)
        except _Moved as error:
            (found,) = error.args
    if found is not None:
        found.at_least = found.beyond = True
    return found


def _once(path: str, max_entries: int | None, stopped: Callable[[], bool]) -> Walked | None:
    try:
        top = Path(path).lstat()
    except OSError:
        return None
    found = Walked()
    if not stat.S_ISDIR(top.st_mode):
        found.count(top)
        return found
    try:
        current = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        _TreeWalk(found, top.st_dev, max_entries, stopped).run(current)
    except OSError:  # the tree changed during the walk: what was counted is a lower bound
        found.at_least = True
    return found


class _TreeWalk(Component):
    """One walk; holds one open directory at a time."""

    found: Walked
    device: int
    max_entries: int | None
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        self._seen = 0
        self._over = False
        # each level of depth takes some bytes: even as many levels as entries must be affordable
        self._inodes = array("Q")
        """The directories from the top to the open one."""
        self._waiting = array("L")
        """The number of pending names in each of them."""
        self._pending = bytearray()
        """Names, each with a NUL after it: a list of strings would take three times as much."""

    def run(self, current: int) -> None:
        """Walk from an open directory, which is closed at the end. Raises OSError, _Moved."""
        try:
            self._enter(current)
            while self._inodes:
                if self._over:
                    return
                if not self._waiting[-1]:
                    self._inodes.pop()
                    self._waiting.pop()
                    if self._inodes:
                        current = self._up(current)
                    continue
                try:
                    below = os.open(self._next(), _OPEN, dir_fd=current)
                except OSError:  # removed, or no longer a directory
                    continue
                current = _swap(current, below)
                self._enter(current)
        finally:
            os.close(current)

    def _enter(self, current: int) -> None:
        """Count the entries of a directory; subdirectories come later."""
        here = os.fstat(current)
        self._inodes.append(here.st_ino)
        self._waiting.append(0)
        if here.st_dev != self.device:
            return
        self.found.count(here)
        with os.scandir(current) as entries:
            for entry in entries:
                if self._is_over():
                    self.found.at_least = self._over = True
                    break
                self._seen += 1
                try:
                    if entry.is_dir(follow_symlinks=False):
                        self._remember(entry.name)
                    else:
                        self.found.count(entry.stat(follow_symlinks=False))
                except OSError:
                    continue

    def _is_over(self) -> bool:
        if self.max_entries is not None and self._seen >= self.max_entries:
            return True
        return self._seen % STOP_EVERY == 0 and self.stopped()

    def _remember(self, name: str) -> None:
        if len(self._pending) >= MAX_PENDING_BYTES:
            self.found.at_least = self.found.beyond = True
            return
        self._waiting[-1] += 1
        self._pending += os.fsencode(name) + b"\0"

    def _next(self) -> bytes:
        """Remove and return the name remembered last."""
        self._waiting[-1] -= 1
        begin = self._pending.rfind(b"\0", 0, -1) + 1
        name = bytes(self._pending[begin:-1])
        del self._pending[begin:]
        return name

    def _up(self, current: int) -> int:
        above = os.open("..", _OPEN, dir_fd=current)
        there = os.fstat(above)
        if (there.st_dev, there.st_ino) != (self.device, self._inodes[-1]):
            os.close(above)
            raise _Moved(self.found)
        return _swap(current, above)


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new


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


class DiskMeter(Component):
    """Remembers the size of trees. ``close`` it within the event loop it was made in."""

    clock: Clock
    seconds_between: float = SECONDS_BETWEEN
    """Negative: trees are never measured (volumeStatsAggPeriod)."""
    patient: bool = False
    """An answer also waits for trees that are only due for another measurement."""

    def __post_init__(self) -> None:
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
        if self.seconds_between < 0:
            return {}
        desired = list(dict.fromkeys(paths))[:MAX_TREES]
        kept = set(desired)
        for removed in [path for path in self._known if path not in kept]:
            del self._known[removed]
            self._large.pop(removed, None)
        now = asyncio.get_running_loop().time()
        due = [p for p in desired if (k := self._known.get(p)) is None or k.next_at <= now]
        if due and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._measure(due), name="disk-usage")
        new = any(path not in self._known for path in desired)
        if self._work is not None and (new or (due and self.patient)):
            await asyncio.wait({self._work}, timeout=PATIENCE_S)
        return {
            path: known.use
            for path in desired
            if (known := self._known.get(path)) is not None and known.use is not None
        }

    def pending(self, paths: Iterable[str]) -> set[str]:
        """Those of these paths that have not been measured yet."""
        return (
            set()
            if self.seconds_between < 0
            else {path for path in paths if path not in self._known}
        )

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
        return ended + max(self.seconds_between, (ended - began) * IDLE_SHARE)

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
        at = int(self.clock.now() * 1e9)
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

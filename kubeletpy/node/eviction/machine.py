"""Reads the signals of this machine, and which file systems images and layers are on.

Must never read on the event loop: a file system that does not answer is left alone for a while, and
keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.patient_threads import SteadyThreads
from kubeletpy.base.tasks import run_together
from kubeletpy.base.text import sizes
from kubeletpy.node.eviction.notices import MemoryNotices
from kubeletpy.node.eviction.signals import (
    Layout,
    Observations,
    Signal,
    SignalObservation,
    layout_of,
)
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.build import group_files
from kubeletpy.node.stats.disks import space
from kubeletpy.node.stats.group_files import GroupFiles, read_text
from kubeletpy.node.stats.node_files import task_counts
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import ImageService

log = logging.getLogger(__name__)

STATFS_WAIT_S = 2.0
"""Source: docs/reference/behaviour-resources.md, ra."""
DISKS = 2
"""File systems that are measured."""
_SPACE = {
    "nodefs": (Signal.NODEFS, Signal.NODEFS_INODES),
    "imagefs": (Signal.IMAGEFS, Signal.IMAGEFS_INODES),
}


class MachineSignals:
    """The machine as eviction measures it; ``close`` it with the event loop it was used in.

    Args:
        groups: None where there are no cgroups to read.
        kubepods: the cgroup of all pods; empty when there is none.
        root_dir: --root-dir; its file system is the node's.
        images: queried once for where it keeps images and layers.
        huge_pages: bytes of the machine's huge pages, which are no available memory.
    """

    def __init__(
        self,
        groups: GroupFiles | None,
        kubepods: str,
        root_dir: str,
        images: ImageService,
        notices: MemoryNotices,
        *,
        huge_pages: int = 0,
        proc: Path = Path("/proc"),
    ) -> None:
        self._groups = groups
        self._kubepods = kubepods
        self._root = root_dir
        self._images = images
        self._notices = notices
        self._huge_pages = huge_pages
        self._proc = str(proc)
        self._paths: dict[str, str] = {"nodefs": root_dir}
        self._layout: Layout | None = None
        # separate from other work in threads, which must not delay an observation
        self._memory = SteadyThreads(1, "eviction-memory")
        self._disk = SteadyThreads(DISKS, "eviction-disk")
        self._queries: dict[str, asyncio.Future[dict[Signal, SignalObservation]]] = {}

    @classmethod
    def for_this_machine(
        cls,
        clock: Clock,
        kubepods: str,
        root_dir: str,
        images: ImageService,
        *,
        huge_pages: int = 0,
    ) -> MachineSignals:
        """Signals of the machine that the agent runs on. Call it inside a running event loop."""
        groups = group_files(clock)
        memory, version = (groups.memory, groups.version) if groups is not None else (None, 2)
        notices = MemoryNotices(memory, version)
        return cls(groups, kubepods, root_dir, images, notices, huge_pages=huge_pages)

    async def observe(self, wanted: Collection[Signal]) -> Observations:
        """Observe what is available for each signal, as far as that is possible."""
        loop = asyncio.get_running_loop()
        found = dict(await loop.run_in_executor(self._memory, self._processes, wanted, loop.time()))
        disks = [name for name, signals in _SPACE.items() if set(signals) & set(wanted)]
        if "imagefs" in disks and await self.layout() is None:
            disks.remove("imagefs")
        for space_of in await run_together(*(self._space(name) for name in disks)):
            found |= space_of
        return {signal: seen for signal, seen in found.items() if signal in wanted}

    async def layout(self) -> Layout | None:
        """Where images and writable layers are; None until the runtime reports it."""
        if self._layout is None:
            try:
                info = await self._images.image_fs_info()
            except CRIError as error:
                log.debug("the runtime does not report its file systems", extra={"why": str(error)})
                return None
            images = [each.fs_id.mountpoint for each in info.image_filesystems[:1]]
            layers = [each.fs_id.mountpoint for each in info.container_filesystems[:1]] or images
            if not images or not images[0]:
                return None
            self._paths["imagefs"] = images[0]
            paths = (self._root, images[0], layers[0])
            with contextlib.suppress(OSError):
                self._layout = layout_of(*await asyncio.to_thread(_devices, paths))
        return self._layout

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """Have the kernel notify us when this many more bytes are used. Never blocks."""
        groups = {Signal.MEMORY: "/"}
        self._notices.arm(
            {groups.get(signal, self._kubepods): left for signal, left in margins.items()}
        )

    async def noticed(self, within: float | None) -> None:
        """Wait until the kernel reports too little memory; at most this many seconds."""
        await self._notices.wait(within)

    def wake(self) -> None:
        """Have :meth:`noticed` return as if the kernel had notified us."""
        self._notices.wake()

    async def close(self) -> None:
        """Stop. Do not wait for a file system that does not answer."""
        self._notices.close()
        self._memory.shutdown(wait=False)
        self._disk.shutdown(wait=False, cancel_futures=True)

    def _processes(self, wanted: Collection[Signal], at: float) -> dict[Signal, SignalObservation]:
        """Memory and tasks: what /proc and one cgroup show."""
        found: dict[Signal, SignalObservation] = {}
        if Signal.MEMORY in wanted:
            memory = node_memory(sizes(read_text(f"{self._proc}/meminfo")), self._huge_pages)
            if memory is not None:
                found[Signal.MEMORY] = SignalObservation(*memory, at)
        if Signal.ALLOCATABLE_MEMORY in wanted and self._groups is not None and self._kubepods:
            stats = self._groups.stats(self._kubepods, detail=False)
            if stats is not None and stats.limit is not None and stats.working_set is not None:
                left = max(0, stats.limit - stats.working_set)
                found[Signal.ALLOCATABLE_MEMORY] = SignalObservation(left, stats.limit, at)
        if Signal.PIDS in wanted:
            most, tasks = task_counts(self._proc)
            if most is not None and tasks is not None:
                found[Signal.PIDS] = SignalObservation(most - tasks, most, at)
        return found

    async def _space(self, name: str) -> dict[Signal, SignalObservation]:
        loop = asyncio.get_running_loop()
        query = self._queries.get(name)
        if query is None or query.done():
            query = loop.run_in_executor(
                self._disk, _space_of, self._paths[name], _SPACE[name], loop.time()
            )
            self._queries[name] = query
        done, _ = await asyncio.wait({query}, timeout=STATFS_WAIT_S)
        if not done:
            log.warning("a file system does not answer", extra={"path": self._paths[name]})
            return {}
        return query.result()


def node_memory(meminfo: Mapping[str, int], huge_pages: int = 0) -> tuple[int, int] | None:
    """(available, capacity) of a machine, from /proc/meminfo in bytes: what the summary shows.

    ``huge_pages``: bytes that are no available memory.
    """
    total, available = meminfo.get("MemTotal"), proc_text.available(meminfo, huge_pages)
    return None if total is None or available is None else (available, total)


def _space_of(
    path: str, signals: tuple[Signal, Signal], at: float
) -> dict[Signal, SignalObservation]:
    found = space(path, 0)
    if found is None:
        return {}
    bytes_, inodes = signals
    seen = {bytes_: SignalObservation(found.available, found.capacity, at)}
    if found.inodes:  # some file systems do not count them (btrfs)
        seen[inodes] = SignalObservation(found.inodes_free, found.inodes, at)
    return seen


def _devices(paths: tuple[str, str, str]) -> tuple[int, int, int]:
    node, images, layers = (os.stat(path).st_dev for path in paths)  # noqa: PTH116 - one call each
    return node, images, layers

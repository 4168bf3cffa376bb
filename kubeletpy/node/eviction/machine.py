"""The machine as eviction measures it: signals, notices of the kernel, and what pods use.

Must never read on the event loop: a file system that does not answer is left alone for a while, and
keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.patient_threads import SteadyThreads
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import run_together, wait_within
from kubeletpy.base.text import number, sizes
from kubeletpy.node.eviction.decide import (
    Layout,
    Observations,
    Signal,
    SignalObservation,
    layout_of,
)
from kubeletpy.node.eviction.ranking import Candidate, candidate
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.collector import StatsCollector, group_files
from kubeletpy.node.stats.disks import space
from kubeletpy.node.stats.group_files import GroupFiles, read_text
from kubeletpy.node.stats.node_files import task_counts
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import ImageService

log = logging.getLogger(__name__)

# Notices of the kernel about memory, so that there is no need to poll.
#
# Source: docs/reference/behaviour-resources.md, rf. On cgroup v1 an eventfd fires when a cgroup's
# usage crosses a threshold. Where the kernel reports stalls (PSI), a trigger fires, and on v2 the
# file ``memory.events`` of a cgroup with a limit.

REARM_S = 10.0
"""Source: docs/reference/constants.csv: threshold notifier refresh."""
STALL = b"some 140000 2000000\x00"
"""Tasks stalled on memory for 140 ms of 2 s, the window that any process may request."""


class MemoryNotices(Component):
    """Notifies of memory that runs short; make it inside a running event loop and close it.

    Never blocks and never acts. Without a source of notices, periodic observations find the same,
    later.

    Args:
        memory: mount point of the memory controller; None where there is none.
        version: of the cgroups, 1 or 2.
        pressure: the machine's PSI file.
    """

    memory: Path | None
    version: int
    pressure: Path = Path("/proc/pressure/memory")

    def __post_init__(self) -> None:
        self._notified = asyncio.Event()
        self._armed_at = float("-inf")
        self._thresholds: list[int] = []
        """Descriptors of eventfds."""
        self._triggers: dict[str, tuple[int, select.epoll]] = {}
        self._closed = False
        self.count = 0
        """How often the kernel notified us."""

    def wake(self) -> None:
        """Wake the waiter for an observation."""
        self._notified.set()

    async def wait(self, within: float | None) -> None:
        """Wait for a notification, at most this many seconds; None: as long as it takes."""
        await wait_within(self._notified, within)
        self._notified.clear()

    def arm(self, margins: Mapping[str, int]) -> None:
        """Be notified when a cgroup uses this many more bytes; rearmed at most every REARM_S."""
        now = asyncio.get_running_loop().time()
        if self._closed or now - self._armed_at < REARM_S:
            return
        self._armed_at = now
        self._trigger(str(self.pressure), STALL)
        old, self._thresholds = self._thresholds, []
        for group, margin in margins.items():
            if self.memory is None or not group:
                continue
            path = f"{self.memory}{group.rstrip('/')}"
            if self.version == 1:
                self._cross(path, margin)
            elif group != "/":
                self._trigger(f"{path}/memory.events", None)
        self._drop(old)

    def close(self) -> None:
        """End all notifications and close their descriptors."""
        self._closed = True
        self._drop(self._thresholds)
        self._thresholds = []
        for path in list(self._triggers):
            self._forget(path)

    def _cross(self, path: str, margin: int) -> None:
        used = number(read_text(f"{path}/memory.usage_in_bytes"))
        if used is None:
            return
        usage = -1
        event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            usage = os.open(f"{path}/memory.usage_in_bytes", os.O_RDONLY | os.O_CLOEXEC)
            control = os.open(f"{path}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(control, f"{event} {usage} {used + margin}".encode())
            finally:
                os.close(control)
        except OSError as error:
            os.close(event)
            log.debug(
                "no memory notifications from the kernel", extra={"path": path, "why": str(error)}
            )
            return
        finally:
            if usage >= 0:
                os.close(usage)
        self._thresholds.append(event)
        asyncio.get_running_loop().add_reader(event, self._crossed, event)

    def _crossed(self, event: int) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_read(event)
        self._signal()

    def _trigger(self, path: str, desired: bytes | None) -> None:
        """Wait for POLLPRI on a file, once ``desired`` was written to it."""
        if path in self._triggers:
            if _is_open(path, self._triggers[path][0]):
                return
            self._forget(path)
        try:
            mode = os.O_RDWR if desired is not None else os.O_RDONLY
            file = os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        poll = select.epoll()
        try:
            if desired is not None:
                os.write(file, desired)
            else:
                os.pread(file, 1, 0)  # a file that was not read yet reports an event at once
            poll.register(file, select.EPOLLPRI)
        except OSError as error:
            log.debug(
                "no memory notifications from the kernel", extra={"path": path, "why": str(error)}
            )
            poll.close()
            os.close(file)
            return
        self._triggers[path] = (file, poll)
        asyncio.get_running_loop().add_reader(poll.fileno(), self._pressed, path)

    def _pressed(self, path: str) -> None:
        file, poll = self._triggers[path]
        events = poll.poll(0)
        if path.endswith("memory.events"):
            # an event comes with an error, too: only reading shows whether the cgroup still exists
            try:
                os.pread(file, 1, 0)  # else the same event is reported again
            except OSError:
                self._forget(path)
        elif any(event & (select.EPOLLERR | select.EPOLLHUP) for _, event in events):
            self._forget(path)
            return
        self._signal()

    def _signal(self) -> None:
        self.count += 1
        self._notified.set()

    def _forget(self, path: str) -> None:
        file, poll = self._triggers.pop(path)
        asyncio.get_running_loop().remove_reader(poll.fileno())
        poll.close()
        os.close(file)

    def _drop(self, events: list[int]) -> None:
        for event in events:
            asyncio.get_running_loop().remove_reader(event)
            os.close(event)


def _is_open(path: str, file: int) -> bool:
    """Whether a descriptor is of the file at this path; a removed cgroup reports nothing."""
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(file))
    except OSError:
        return False


STATFS_WAIT_S = 2.0
"""Source: docs/reference/behaviour-resources.md, ra."""
DISKS = 2
"""File systems that are measured."""
_SPACE = {
    "nodefs": (Signal.NODEFS, Signal.NODEFS_INODES),
    "imagefs": (Signal.IMAGEFS, Signal.IMAGEFS_INODES),
}


class MachineSignals(Component):
    """The machine as eviction measures it; ``close`` it with the event loop it was used in.

    Args:
        groups: None where there are no cgroups to read.
        kubepods: the cgroup of all pods; empty when there is none.
        root_dir: --root-dir; its file system is the node's.
        images: queried once for where it keeps images and layers.
        huge_pages: bytes of the machine's huge pages, which are no available memory.
    """

    groups: GroupFiles | None
    kubepods: str
    root_dir: str
    images: ImageService
    notices: MemoryNotices
    huge_pages: int = 0
    proc: Path = Path("/proc")

    def __post_init__(self) -> None:
        self._proc = str(self.proc)
        self._paths: dict[str, str] = {"nodefs": self.root_dir}
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

    async def observe(self, desired: Collection[Signal]) -> Observations:
        """Observe what is available for each signal, as far as that is possible."""
        loop = asyncio.get_running_loop()
        found = dict(
            await loop.run_in_executor(self._memory, self._processes, desired, loop.time())
        )
        disks = [name for name, signals in _SPACE.items() if set(signals) & set(desired)]
        if "imagefs" in disks and await self.layout() is None:
            disks.remove("imagefs")
        for space_of in await run_together(*(self._space(name) for name in disks)):
            found |= space_of
        return {signal: seen for signal, seen in found.items() if signal in desired}

    async def layout(self) -> Layout | None:
        """Where images and writable layers are; None until the runtime reports it."""
        if self._layout is None:
            try:
                info = await self.images.image_fs_info()
            except CRIError as error:
                log.debug("the runtime does not report its file systems", extra={"why": str(error)})
                return None
            images = [each.fs_id.mountpoint for each in info.image_filesystems[:1]]
            layers = [each.fs_id.mountpoint for each in info.container_filesystems[:1]] or images
            if not images or not images[0]:
                return None
            self._paths["imagefs"] = images[0]
            paths = (self.root_dir, images[0], layers[0])
            with contextlib.suppress(OSError):
                self._layout = layout_of(*await asyncio.to_thread(_devices, paths))
        return self._layout

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """Have the kernel notify us when this many more bytes are used. Never blocks."""
        groups = {Signal.MEMORY: "/"}
        self.notices.arm(
            {groups.get(signal, self.kubepods): left for signal, left in margins.items()}
        )

    async def noticed(self, within: float | None) -> None:
        """Wait until the kernel reports too little memory; at most this many seconds."""
        await self.notices.wait(within)

    def wake(self) -> None:
        """Have :meth:`noticed` return as if the kernel had notified us."""
        self.notices.wake()

    async def close(self) -> None:
        """End notices and threads, without waiting for a file system that does not answer."""
        self.notices.close()
        self._memory.shutdown(wait=False)
        self._disk.shutdown(wait=False, cancel_futures=True)

    def _processes(self, desired: Collection[Signal], at: float) -> dict[Signal, SignalObservation]:
        """Memory and tasks: what /proc and one cgroup show."""
        found: dict[Signal, SignalObservation] = {}
        if Signal.MEMORY in desired:
            memory = node_memory(sizes(read_text(f"{self._proc}/meminfo")), self.huge_pages)
            if memory is not None:
                found[Signal.MEMORY] = SignalObservation(*memory, at)
        if Signal.ALLOCATABLE_MEMORY in desired and self.groups is not None and self.kubepods:
            stats = self.groups.stats(self.kubepods, detail=False)
            if stats is not None and stats.limit is not None and stats.working_set is not None:
                left = max(0, stats.limit - stats.working_set)
                found[Signal.ALLOCATABLE_MEMORY] = SignalObservation(left, stats.limit, at)
        if Signal.PIDS in desired:
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


class Unwatched:
    """Signals and uses of a node where only limits of pods are watched: there are no numbers."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    async def observe(self, desired: Collection[Signal]) -> Observations:
        """Return no observation: no signal is watched."""
        return {}

    async def layout(self) -> Layout | None:
        """It is not known."""
        return None

    def arm(self, margins: Mapping[Signal, int]) -> None:
        """Do nothing: no memory is watched."""

    async def noticed(self, within: float | None) -> None:
        """Wait until woken, at most this many seconds."""
        await wait_within(self._woken, within)
        self._woken.clear()

    def wake(self) -> None:
        """Have :meth:`noticed` return at once."""
        self._woken.set()

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Return no candidate: no pod is evicted for the node."""
        return []

    async def close(self) -> None:
        """Do nothing: no descriptor is open."""


class CollectedUses(Component):
    """Reads usage from a collector at each call: the ranking must not depend on old numbers.

    ``close`` it with the event loop it was used in.
    """

    collector: StatsCollector

    async def candidates(self, pods: Sequence[Pod], *, disk: bool) -> list[Candidate]:
        """Each pod with what it uses; ``disk``: including the disk, which may take 2 s."""
        reading, disks = await self.collector.at_once(disk=disk)
        readings = {each.ref.uid: each for each in reading.pods}
        on_disk = disks.pods if disks is not None else {}
        return [candidate(pod, readings.get(pod.uid), on_disk.get(pod.uid)) for pod in pods]

    async def close(self) -> None:
        """Close the collector that it reads from."""
        await self.collector.close()

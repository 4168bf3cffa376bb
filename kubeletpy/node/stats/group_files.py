"""Reads cgroups: finds those of a pod and its containers, and reads their files.

Blocking, except :class:`Locator`: some tens of system calls per cgroup on an in-memory file system,
so call it in a thread. A cgroup that disappears meanwhile is not an error. Must never write, and
never leave the hierarchies.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import run_together
from kubeletpy.base.text import lines, number
from kubeletpy.node.stats import cgroup_text, proc_text
from kubeletpy.node.stats.usage import GroupStats
from kubeletpy.pods.resources import MIN_SHARES, weight_to_shares
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import RuntimeService

MAX_FILE = 64 << 10
MAX_PROCESSES = 1000
"""Maximum processes per cgroup whose descriptors are counted."""
MAX_LISTED = 10_000
"""Descriptors that are counted one by one, where the kernel does not count them."""


def container_id(directory: str) -> str:
    """The container whose cgroup has this name: ``ID``, ``RUNTIME-ID`` or ``RUNTIME-ID.scope``."""
    return directory.removesuffix(".scope").rpartition("-")[2]


class GroupFiles(Component):
    """The cgroups of this machine.

    Args:
        version: 1 or 2.
        mounts: controller -> mount point of its hierarchy.
    """

    version: int
    mounts: Mapping[str, Path]
    clock: Clock

    def __post_init__(self) -> None:
        memory = self.mounts.get("memory")
        self._memory = str(memory) if memory is not None else ""
        if self.version == 2:
            self._basic = [(self._memory, name) for name in cgroup_text.V2_BASIC]
            self._detail = [(self._memory, name) for name in cgroup_text.V2_DETAIL]
        else:
            self._basic, self._detail = (
                [(str(self.mounts[each]), name) for each, name in files if each in self.mounts]
                for files in (cgroup_text.V1_BASIC, cgroup_text.V1_DETAIL)
            )

    @property
    def memory(self) -> Path | None:
        """Mount point of the memory controller; None where there is none."""
        return Path(self._memory) if self._memory else None

    def stats(self, path: str, *, detail: bool) -> GroupStats | None:
        """The usage of a cgroup; None when it does not exist.

        ``detail``: limits, throttling and devices too.
        """
        if not path.startswith("/") or "/../" in f"{path}/":
            return None
        at = int(self.clock.now() * 1e9)
        texts = _texts(self._basic, path)
        if detail:
            texts |= _texts(self._detail, path)
        if not texts:
            return None
        read = cgroup_text.from_v2 if self.version == 2 else cgroup_text.from_v1
        return read(texts, at)

    def made_at(self, path: str) -> int:
        """Since when a cgroup has existed, Unix nanoseconds; 0 when it does not exist.

        The kernel does not report it; its files carry the time when they were first accessed.
        """
        group = f"{self._memory}{path}"
        try:
            seen = [Path(name).stat().st_mtime_ns for name in (group, f"{group}/cgroup.procs")]
        except OSError:
            return 0
        return min(seen)

    def containers(self, path: str) -> dict[str, str]:
        """id -> path of the cgroups directly below a pod's.

        A runtime may have the container's monitor there too, with a longer name for the same id.
        """
        try:
            with os.scandir(f"{self._memory}{path}") as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return {}
        names.sort(key=len, reverse=True)
        return {container_id(name): f"{path}/{name}" for name in names}

    def processes(self, path: str) -> list[int]:
        """Processes in a cgroup itself, not in those below; none when it does not exist."""
        text = read_text(f"{self._memory}{path}/cgroup.procs")
        return [pid for line in lines(text) if (pid := number(line)) is not None]


def descriptors(processes: Iterable[int]) -> int:
    """The number of open files of the first MAX_PROCESSES processes.

    Since Linux 6.2 the kernel shows the count as the size of the directory.
    """
    count, left = 0, MAX_LISTED
    for pid in itertools.islice(processes, MAX_PROCESSES):
        directory = Path(f"/proc/{pid}/fd")
        try:
            reported = directory.stat().st_size
            if not reported and left > 0:
                with os.scandir(directory) as entries:
                    reported = sum(1 for _ in itertools.islice(entries, left))
                left -= reported
        except OSError:
            continue
        count += reported
    return count


def read_text(path: str) -> str:
    """The text of a kernel file; empty when it can't be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = []
        left = MAX_FILE
        while left > 0 and (data := os.read(descriptor, left)):
            parts.append(data)
            left -= len(data)
        return b"".join(parts).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def with_kubelet_shares(stats: GroupStats | None) -> GroupStats | None:
    """The stats of a cgroup whose cpu.weight the agent wrote: the shares that it wrote it for."""
    if stats is None or stats.weight is None:
        return stats
    return replace(stats, shares=max(weight_to_shares(stats.weight), MIN_SHARES))


def _texts(files: list[tuple[str, str]], path: str) -> dict[str, str]:
    texts = ((name, read_text(f"{mount}{path}/{name}")) for mount, name in files)
    return {name: text for name, text in texts if text}


log = logging.getLogger(__name__)

AT_ONCE = 8


class Locator(Component):
    """Finds the cgroups of sandboxes and containers when pods have none (cgroupsPerQOS false).

    Then the runtime puts them anywhere, and its verbose status names the first process; the cgroup
    of that process is the container's. The runtime is queried once per container.
    """

    runtime: RuntimeService
    version: int
    """That of the machine's cgroups, 1 or 2."""

    def __post_init__(self) -> None:
        self._controller = "" if self.version == 2 else "memory"
        self._paths: dict[str, str] = {}

    async def find(self, sandboxes: Iterable[str], containers: Iterable[str]) -> dict[str, str]:
        """id -> path, for those that can be found."""
        sandboxes, containers = list(sandboxes), list(containers)
        kept = {*sandboxes, *containers}
        self._paths = {key: path for key, path in self._paths.items() if key in kept}
        slots = asyncio.Semaphore(AT_ONCE)
        new = [(i, True) for i in sandboxes if i not in self._paths]
        new += [(i, False) for i in containers if i not in self._paths]
        await run_together(*(self._find(i, slots, sandbox=s) for i, s in new))
        return {key: path for key, path in self._paths.items() if path}

    async def _find(self, identifier: str, slots: asyncio.Semaphore, *, sandbox: bool) -> None:
        try:
            async with slots:
                if sandbox:
                    info = (await self.runtime.pod_sandbox_status(identifier, verbose=True)).info
                else:
                    info = (await self.runtime.container_status(identifier, verbose=True)).info
        except CRIError as error:
            log.debug("no status", extra={"id": identifier, "why": str(error)})
            return
        pid = first_process(info.get("info", ""))
        paths = proc_text.group_paths(read_text(f"/proc/{pid}/cgroup")) if pid else {}
        path = paths.get(self._controller, "")
        # a process that has just ended shows up in the root, which is no container's cgroup
        self._paths[identifier] = "" if path == "/" else path


def first_process(info: str) -> int:
    """The pid in a runtime's verbose status of a container or sandbox; 0 when there is none."""
    try:
        pid = json.loads(info).get("pid")
    except (ValueError, AttributeError):
        return 0
    return pid if isinstance(pid, int) and pid > 1 else 0

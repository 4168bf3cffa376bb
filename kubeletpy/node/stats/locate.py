"""Locates the cgroups of sandboxes and containers when pods have none (cgroupsPerQOS false).

Then the runtime puts them anywhere, and its verbose status names the first process; the cgroup of
that process is the container's. Queried once per container.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable

from kubeletpy.base.tasks import run_together
from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.group_files import read_text
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import RuntimeService

log = logging.getLogger(__name__)

AT_ONCE = 8


class Locator:
    """Remembers paths by id."""

    def __init__(self, runtime: RuntimeService, version: int) -> None:
        """``version`` of cgroups."""
        self._runtime = runtime
        self._controller = "" if version == 2 else "memory"
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
                    info = (await self._runtime.pod_sandbox_status(identifier, verbose=True)).info
                else:
                    info = (await self._runtime.container_status(identifier, verbose=True)).info
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

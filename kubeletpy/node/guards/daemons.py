"""Moves processes into their configured cgroups.

The agent's own process goes into that of kubeletCgroups, all processes that are in no cgroup yet
into that of systemCgroups. Source: docs/reference/behaviour-resources.md, rj: kubelet process.
Repeated every minute, since new processes start. Must never touch a process in somebody else's
cgroup, nor one outside this machine's own process namespace.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.resources.cgroups.filesystem import ProcessGroups
from kubeletpy.resources.cgroups.values import CgroupError

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
ROUNDS = 10
"""How many rounds to search: processes start others while they are moved."""
_INIT = 1
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The machine's own PID namespace has the same number in every kernel."""
_REPORTED = 3
"""How many errors a message names."""


class DaemonCgroups:
    """Moves processes into their cgroups on this machine.

    Args:
        kubelet: path of the agent's cgroup; empty: it stays where it is.
        system: path of the cgroup for processes that have none; empty: they stay where they are.
        proc: /proc.
        own: pid of this agent.
    """

    def __init__(
        self,
        groups: ProcessGroups,
        *,
        kubelet: str,
        system: str,
        proc: Path,
        own: int,
    ) -> None:
        self._groups = groups
        self._kubelet = kubelet
        self._system = system
        self._proc = proc
        self._own = own
        self._reported: dict[str, str] = {}

    async def run(self) -> None:
        """Check every minute until cancelled; an error is logged once while it lasts."""
        while True:
            for field, path, move in (
                ("systemCgroups", self._system, self.move_system),
                ("kubeletCgroups", self._kubelet, self.move_own),
            ):
                if path:
                    self._warn_once(field, path, await asyncio.to_thread(_why_not, move))
            await asyncio.sleep(CHECK_EVERY_S)

    def move_own(self) -> None:
        """Move the agent's own process. Raises CgroupError."""
        if not self._in_own_namespace():
            return  # in a container: what runs the container decides where it belongs
        self._groups.create(self._kubelet)
        self._groups.move_process(self._own, self._kubelet)

    def move_system(self) -> None:
        """Move the processes that are in no cgroup. Raises CgroupError."""
        if not self._in_own_namespace():
            return
        self._groups.create(self._system)
        failed: dict[int, str] = {}
        for _ in range(ROUNDS):
            waiting = [pid for pid in sorted(self._groups.in_none()) if self._may_move(pid)]
            failed = {pid: why for pid, why in failed.items() if pid in waiting}
            if len(failed) == len(waiting):
                break
            for pid in waiting:
                try:
                    self._groups.move_process(pid, self._system)
                except CgroupError as error:
                    failed[pid] = str(error)
        if failed:
            raise CgroupError(_summary(list(failed.values())))

    def _may_move(self, pid: int) -> bool:
        return pid not in (_INIT, self._own if self._kubelet else 0) and not self._of_kernel(pid)

    def _of_kernel(self, pid: int) -> bool:
        """Whether it is a kernel thread: these have no executable."""
        try:
            (self._proc / str(pid) / "exe").readlink()
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.ESRCH)
        return False

    def _in_own_namespace(self) -> bool:
        try:
            own = str(self._namespace(self._own).readlink())
            if own == _FIRST_NAMESPACE:
                return True  # not every machine permits reading init's namespace
            return own == str(self._namespace(_INIT).readlink())
        except OSError as error:
            raise CgroupError(f"the namespace of processes is not known: {error}") from error

    def _namespace(self, pid: int) -> Path:
        return self._proc / str(pid) / "ns" / "pid"

    def _warn_once(self, field: str, path: str, why: str) -> None:
        if why and why != self._reported.get(field):
            log.warning(
                "processes are not in the cgroup that is configured for them; trying again",
                extra={"field": field, "cgroup": path, "why": why},
            )
        self._reported[field] = why


def _why_not(move: Callable[[], None]) -> str:
    try:
        move()
    except CgroupError as error:
        return str(error)
    return ""


def _summary(errors: Sequence[str]) -> str:
    more = len(errors) - _REPORTED
    return "; ".join(errors[:_REPORTED]) + (f"; and {more} more" if more > 0 else "")

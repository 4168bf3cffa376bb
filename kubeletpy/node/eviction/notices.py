"""Has the kernel report when memory runs short, so that there is no need to poll.

Source: docs/reference/behaviour-resources.md, rf. On cgroup v1 an eventfd fires when a cgroup's
usage crosses a threshold. Where the kernel reports stalls (PSI), a trigger fires, and on v2 the
file ``memory.events`` of a cgroup with a limit. Without a source of notices, periodic observations
find the same, later. Must never block, and never act.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
from collections.abc import Mapping
from pathlib import Path

from kubeletpy.base.text import number
from kubeletpy.node.stats.group_files import read_text

log = logging.getLogger(__name__)

REARM_S = 10.0
"""Source: docs/reference/constants.csv: threshold notifier refresh."""
STALL = b"some 140000 2000000\x00"
"""Tasks stalled on memory for 140 ms of 2 s, the window that any process may request."""


class MemoryNotices:
    """Make it inside a running event loop and close it.

    Args:
        memory: mount point of the memory controller; None where there is none.
        version: of the cgroups, 1 or 2.
        pressure: the machine's PSI file.
    """

    def __init__(
        self,
        memory: Path | None,
        version: int,
        *,
        pressure: Path = Path("/proc/pressure/memory"),
    ) -> None:
        self._memory = memory
        self._version = version
        self._pressure = pressure
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._notified.wait()
        self._notified.clear()

    def arm(self, margins: Mapping[str, int]) -> None:
        """Be notified when a cgroup uses this many more bytes; rearmed at most every REARM_S."""
        now = asyncio.get_running_loop().time()
        if self._closed or now - self._armed_at < REARM_S:
            return
        self._armed_at = now
        self._trigger(str(self._pressure), STALL)
        old, self._thresholds = self._thresholds, []
        for group, margin in margins.items():
            if self._memory is None or not group:
                continue
            path = f"{self._memory}{group.rstrip('/')}"
            if self._version == 1:
                self._cross(path, margin)
            elif group != "/":
                self._trigger(f"{path}/memory.events", None)
        self._drop(old)

    def close(self) -> None:
        """End all notifications."""
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

    def _trigger(self, path: str, wanted: bytes | None) -> None:
        """Wait for POLLPRI on a file, once ``wanted`` was written to it."""
        if path in self._triggers:
            if _is_open(path, self._triggers[path][0]):
                return
            self._forget(path)
        try:
            mode = os.O_RDWR if wanted is not None else os.O_RDONLY
            file = os.open(path, mode | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        poll = select.epoll()
        try:
            if wanted is not None:
                os.write(file, wanted)
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

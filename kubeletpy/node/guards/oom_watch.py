"""Follows the kernel's log for kills due to lack of memory on the machine, and reports them.

Source: docs/reference/behaviour-resources.md, rf: OOM watcher. The kernel keeps the log from boot
on. A restarted agent does not report again what was reported. Kills while no agent ran are reported
late (for example a kill of the agent itself). Must never block.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import number

log = logging.getLogger(__name__)

RECORD_BYTES = 16 * 1024
"""More than any record: the kernel refuses a read that is too small for the next one."""
RECORDS_AT_ONCE = 200
"""How many before anything else gets a turn; a busy machine's log has some ten thousand."""
RETRY_S = 60.0
"""Until the log is opened again after an error."""
MARK = "kernel_log_mark"
"""File below the root directory: boot id, and the last record that was reported."""
MARK_BYTES = 4096


# Records of the kernel's log, and the kills of the OOM killer in them.
#
# The kernel writes several records about one kill: the first begins it, and the one on the killed
# process ends it. Processes choose their names, and a writer to /dev/kmsg chooses whole texts:
# such a record is never treated as the kernel's own.

MAX_NAME = 64
"""Characters of a process's name that are kept: the kernel has 15 bytes, each escaped as 4."""

_BEGIN = " invoked oom-killer:"
_IN_GROUP = "oom-kill:constraint=CONSTRAINT_MEMCG,"
_KILLED = re.compile(r"Killed process (?P<pid>\d{1,10}) \((?P<name>.*)\)", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


class KernelRecord(Struct, frozen=True):
    """One record of /dev/kmsg."""

    sequence: int
    """Its number since boot."""
    from_kernel: bool
    """Whether the kernel wrote it, not a process."""
    text: str


class Kill(Struct, frozen=True):
    """A process killed because the machine ran out of memory."""

    sequence: int
    """Sequence number of the record that ended it."""
    process: str
    pid: int


def parse_kernel_record(data: bytes) -> KernelRecord | None:
    """A record as one read of /dev/kmsg returns it; None for anything else.

    ``PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];TEXT`` and then lines of tags, which are not read.
    """
    head, found, rest = data.partition(b";")
    fields = head.decode("ascii", errors="replace").split(",")
    if not found or len(fields) < 3:
        return None
    priority, sequence, microseconds = (number(field) for field in fields[:3])
    if priority is None or sequence is None or microseconds is None:
        return None
    text = rest.partition(b"\n")[0].decode("utf-8", errors="replace")
    # the facility is above the three bits of the level; 0 is the kernel, and nothing else gets it
    return KernelRecord(sequence, priority >> 3 == 0, text)


class Kills:
    """Combines records into kills; keeps no more than whether one has begun."""

    def __init__(self) -> None:
        self._begun = False

    def add(self, record: KernelRecord) -> Kill | None:
        """The next record; the kill that it ends, if it ends one.

        A kill in a cgroup at its limit does not count: the container's status reports it. The
        kernel names what was at its limit before any name that a process has chosen.
        """
        if not record.from_kernel:
            return None
        if not self._begun:
            self._begun = _BEGIN in record.text
            return None
        if record.text.startswith(_IN_GROUP):
            self._begun = False
            return None
        if (ended := _KILLED.search(record.text)) is None:
            return None
        self._begun = False
        return Kill(record.sequence, _name(ended["name"]), int(ended["pid"]))


def system_oom(kill: Kill) -> str:
    """The message of the node's event. Source: docs/reference/events.csv: SystemOOM."""
    if not kill.process or not kill.pid:
        return "System OOM encountered"
    return f"System OOM encountered, victim process: {kill.process}, pid: {kill.pid}"


def _name(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)[:MAX_NAME]


# The watch.


class OOMWatch(Component):
    """Reports kills in order. Make it inside a running event loop.

    Args:
        open_log: opens /dev/kmsg without blocking: each read of the descriptor gives one record.
        mark: file that remembers what was reported, over restarts.
        boot_id: of this boot; record numbers start with it.
        killed: called with each kill, in order.
    """

    open_log: Callable[[], int]
    mark: Path
    boot_id: str
    killed: Callable[[Kill], None]

    def __post_init__(self) -> None:
        self._mark = StateFile(
            self.mark, self._capture, "kills may be reported again after a restart of the agent"
        )
        self._reported: int | None = None
        """The last record that was reported, or need not be; None: not known yet."""
        self._newest = -1

    async def run(self) -> None:
        """Follow the log until cancelled; where there is none, log that once."""
        self._reported = await asyncio.to_thread(self._read_mark)
        stated = False
        try:
            while True:
                try:
                    await self._follow()
                except OSError as error:
                    if not stated:
                        log.warning(
                            "the kernel's log can't be read: kills for lack of memory on the "
                            "machine (SystemOOM) are not reported",
                            extra={"why": str(error)},
                        )
                    stated = True
                await asyncio.sleep(RETRY_S)
        finally:
            await self._mark.close()

    async def _follow(self) -> None:
        descriptor = self.open_log()
        loop, readable, kills = asyncio.get_running_loop(), asyncio.Event(), Kills()
        try:
            readable.set()  # this way the end of an empty log is known too
            loop.add_reader(descriptor, readable.set)
            try:
                while True:
                    await readable.wait()
                    readable.clear()
                    self._read_some(descriptor, kills)
            finally:
                loop.remove_reader(descriptor)
        finally:
            os.close(descriptor)

    def _read_some(self, descriptor: int, kills: Kills) -> None:
        for _ in range(RECORDS_AT_ONCE):
            try:
                data = os.read(descriptor, RECORD_BYTES)
            except BlockingIOError:
                if self._reported is None:  # the first agent since boot reports from now on
                    self._set_reported(self._newest)
                return
            except BrokenPipeError:  # the oldest were overwritten: the next read goes on after them
                continue
            record = parse_kernel_record(data)
            if record is None:
                continue
            self._newest = record.sequence
            kill = kills.add(record)
            if kill is not None and self._reported is not None and kill.sequence > self._reported:
                self._set_reported(kill.sequence)
                self.killed(kill)

    def _set_reported(self, sequence: int) -> None:
        self._reported = sequence
        self._mark.write_soon()

    def _capture(self) -> Callable[[], str]:
        return partial(json.dumps, {"bootID": self.boot_id, "sequence": self._reported})

    def _read_mark(self) -> int | None:
        try:
            found = json.loads(read_state(self._mark.path, MARK_BYTES))
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or found.get("bootID") != self.boot_id:
            return None
        sequence = found.get("sequence")
        return sequence if type(sequence) is int else None


def open_kernel_log(path: Path = Path("/dev/kmsg")) -> int:
    """A descriptor that gives all records from the oldest one. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

"""Follows the kernel's reports of killed processes: its log of OOM kills, and deaths by signals.

Source: docs/reference/behaviour-resources.md, rf: OOM watcher. The kernel keeps the log from boot
on. A restarted agent does not report again what was reported. Kills for lack of memory on the
machine while no agent ran are reported late (for example a kill of the agent itself). Must never
block.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import re
import socket
import struct
import sys
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
FIRST_NAMESPACE = "pid:[4026531836]"
"""The machine's own PID namespace has the same number in every kernel."""


# Records of the kernel's log, and the kills of the OOM killer in them.
#
# The kernel writes several records about one kill: the first begins it, and the one on the killed
# process ends it. Processes choose their names, and a writer to /dev/kmsg chooses whole texts:
# such a record is never treated as the kernel's own.

MAX_NAME = 64
"""Characters of a process's name that are kept: the kernel has 15 bytes, each escaped as 4."""

_BEGIN = " invoked oom-killer:"
_OF_GROUP = "Memory cgroup out of memory"
_SUMMARY = re.compile(
    r"oom-kill:constraint=CONSTRAINT_[A-Z_]{1,20},nodemask=[^=]*,"
    r"(?:cpuset=[^=]*,mems_allowed=[0-9,-]*,)?(?:oom_memcg=(?P<limit>/[^,]*)|global_oom),task_memcg=(?P<group>/[^,]*),"
    r"task=.*,pid=(?P<pid>\d{1,10}),uid=\d{1,10}",
    re.ASCII,
)
"""The kernel's summary of a kill; without cpusets it lacks two of the fields.

A group whose name has one of the separators is not read.
"""
_ALL_OF_GROUP = re.compile(
    r"Tasks in (?P<group>/.*) are going to be killed due to memory\.oom\.group"
)
_KILLED = re.compile(r"Killed process (?P<pid>\d{1,10}) \((?P<name>.*)\)", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_OF_KILLS = re.compile(rb"oom-kill|are going to be killed|Killed process")
"""Is found in each record that is about a kill. At the start of an agent few of thousands are."""


class KernelRecord(Struct, frozen=True):
    """One record of /dev/kmsg."""

    sequence: int
    """Its number since boot."""
    from_kernel: bool
    """Whether the kernel wrote it, not a process."""
    text: str


class Kill(Struct, frozen=True):
    """A process killed because the machine, or a cgroup, ran out of memory."""

    sequence: int
    """Sequence number of the record that ended it."""
    process: str
    pid: int
    group: str = ""
    """Cgroup of the process; empty: not known, since the kernel limits how much it logs."""
    limit: str = ""
    """Cgroup that had reached its limit; empty: the machine, or not known."""
    in_group: bool = False
    """A cgroup was at its limit, not the machine."""


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
    """Combines records into kills; keeps no more than how far the present one is."""

    def __init__(self) -> None:
        self._begun = False
        self._summary: re.Match[str] | None = None
        self._all_of = ""

    def add(self, record: KernelRecord) -> Kill | None:
        """The next record; the kill that it ends, if it ends one.

        The kernel names what was at its limit before any name that a process has chosen. A kill on
        the machine counts only with the record that begins it.
        """
        if not record.from_kernel:
            return None
        text = record.text
        if _BEGIN in text:
            self._begun, self._summary, self._all_of = True, None, ""
        elif (summary := _SUMMARY.fullmatch(text)) is not None:
            self._summary = summary
        elif (together := _ALL_OF_GROUP.match(text)) is not None:
            self._all_of = together["group"]
        elif (ended := _KILLED.search(text)) is not None:
            return self._kill(record, ended, in_group=text.startswith(_OF_GROUP))
        return None

    def _kill(self, record: KernelRecord, ended: re.Match[str], *, in_group: bool) -> Kill | None:
        begun, self._begun = self._begun, False
        if not begun and not in_group:
            return None
        found, pid = self._summary, int(ended["pid"])
        group = limit = ""
        if found is not None and int(found["pid"]) == pid:
            group, limit = found["group"], found["limit"] or ""
        elif in_group and self._all_of:
            group, limit = self._all_of, (found["limit"] or "") if found is not None else ""
        return Kill(record.sequence, _name(ended["name"]), pid, group, limit, in_group)


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
        killed: called with each kill on the machine, in order.
        any_killed: called with each kill since the agent began to follow the log, those in a cgroup
            at its limit too. No record of these is kept: containers have counters.
    """

    open_log: Callable[[], int]
    mark: Path
    boot_id: str
    killed: Callable[[Kill], None]
    any_killed: Callable[[Kill], None] = lambda kill: None

    def __post_init__(self) -> None:
        self._mark = StateFile(
            self.mark, self._capture, "kills may be reported again after a restart of the agent"
        )
        self._reported: int | None = None
        """The last record that was reported, or need not be; None: not known yet."""
        self._newest = b""
        """The record that was read last."""
        self._descriptor: int | None = None
        self._kills = Kills()
        self.caught_up = False
        """Each kill from now on is reported within moments."""

    async def run(self) -> None:
        """Follow the log until cancelled; where there is none, log that once."""
        self._reported = await asyncio.to_thread(self._read_mark)
        stated = False
        try:
            while True:
                try:
                    await self._follow()
                except OSError as error:
                    self.caught_up = False
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
        self._descriptor = descriptor = self.open_log()
        self._kills = Kills()
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        try:
            readable.set()  # this way the end of an empty log is known too
            loop.add_reader(descriptor, readable.set)
            try:
                while True:
                    await readable.wait()
                    readable.clear()
                    self.read_some()
            finally:
                loop.remove_reader(descriptor)
        finally:
            self._descriptor = None
            os.close(descriptor)

    def read_some(self) -> None:
        """Report what the kernel has logged so far, up to RECORDS_AT_ONCE. Raises OSError."""
        if (descriptor := self._descriptor) is None:
            return
        for _ in range(RECORDS_AT_ONCE):
            try:
                data = os.read(descriptor, RECORD_BYTES)
            except BlockingIOError:
                self.caught_up = True
                if self._reported is None:  # the first agent since boot reports from now on
                    newest = parse_kernel_record(self._newest)
                    self._set_reported(newest.sequence if newest is not None else -1)
                return
            except BrokenPipeError:  # the oldest were overwritten: the next read goes on after them
                continue
            self._newest = data
            if _OF_KILLS.search(data) is None or (record := parse_kernel_record(data)) is None:
                continue
            if (kill := self._kills.add(record)) is None:
                continue
            if self.caught_up:
                self.any_killed(kill)
            known = self._reported
            if not kill.in_group and known is not None and kill.sequence > known:
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


# Deaths by signals. An exit code of 128 and more may be a signal's, or the choice of a program: the
# kernel alone has the difference. Its connector of process events reports each exit. A filter in
# the kernel leaves out all but main threads that a signal has ended: no other exit wakes the agent.

_NETLINK_CONNECTOR, _PROC, _LISTEN = 11, 1, 1
_EXIT_EVENT = 0x80000000
_HEADER = struct.Struct("=IHHIIIIIIHH")
"""The headers of netlink (16 bytes) and connector (20 bytes)."""
_EVENT = struct.Struct("=IIQIIII")
"""Kind, cpu, time; process, its main thread, exit status, and the signal for its parent."""
_MAX_EVENT = 1024
_RECEIVE_BYTES = 1 << 18
_SO_ATTACH_FILTER = 26


def _swapped(value: int) -> int:
    """A number of the machine as the filter, which loads in network order, sees it."""
    return int.from_bytes(value.to_bytes(4, sys.byteorder), "big")


def _filter() -> bytes:
    """The filter in classic BPF: (code, jump if true, jump if false, operand) each."""
    at = _HEADER.size
    low = at + (24 if sys.byteorder == "little" else 27)
    steps = (
        (0x20, 0, 0, at),  # load what
        (0x15, 1, 0, _swapped(_EXIT_EVENT)),  # an exit
        (0x15, 7, 6, 0),  # the kernel's answer to the request
        (0x20, 0, 0, at + 16),  # load the thread
        (0x07, 0, 0, 0),
        (0x20, 0, 0, at + 20),  # load the process
        (0x1D, 0, 2, 0),  # the main thread
        (0x30, 0, 0, low),  # load the low byte of the status
        (0x45, 1, 0, 0x7F),  # a signal
        (0x06, 0, 0, 0),  # drop
        (0x06, 0, 0, _MAX_EVENT),  # keep
    )
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def open_process_events() -> socket.socket:
    """A socket with a message for each process that a signal ends. Raises OSError."""
    if str(Path("/proc/self/ns/pid").readlink()) != FIRST_NAMESPACE:
        raise PermissionError("process events have the numbers of the machine's own namespace")
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
    try:
        program = ctypes.create_string_buffer(code := _filter(), len(code))
        attached = struct.pack("@HP", len(code) // 8, ctypes.addressof(program))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        opened.setblocking(False)
        opened.bind((0, _PROC))
        size = _HEADER.size + 4
        opened.send(
            _HEADER.pack(size, 3, 0, 0, 0, _PROC, 1, 0, 0, 4, 0) + struct.pack("=I", _LISTEN)
        )
    except BaseException:
        opened.close()
        raise
    return opened


def is_granted(data: bytes) -> bool:
    """Whether a message is the kernel's answer that events will follow."""
    if len(data) < _HEADER.size + 20:
        return False
    what, _, _, error = struct.unpack_from("=IIQI", data, _HEADER.size)
    return bool(what == 0 and error == 0)


def parse_signal_death(data: bytes) -> tuple[int, int] | None:
    """The process and the signal of a message; None for anything else."""
    if len(data) < _HEADER.size + _EVENT.size:
        return None
    what, _, _, _, process, status, _ = _EVENT.unpack_from(data, _HEADER.size)
    number = status & 0x7F
    return (process, number) if what == _EXIT_EVENT and number else None


class SignalWatch(Component):
    """Reports processes that a signal has ended. Make it inside a running event loop."""

    open_events: Callable[[], socket.socket]
    """Opens the kernel's process events; see :func:`open_process_events`."""
    died: Callable[[int, int], None]
    """Called with process and signal."""

    def __post_init__(self) -> None:
        self.since: float | None = None
        """Event-loop seconds since when no death was missed; None: deaths are not reported."""
        self._events: socket.socket | None = None

    async def run(self) -> None:
        """Follow until cancelled; where it is not permitted, deaths have less evidence."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        try:
            events = self._events = self.open_events()
        except OSError as error:
            log.info("process events can't be followed", extra={"why": str(error)})
            return
        with events:
            loop.add_reader(events, readable.set)
            try:
                while True:
                    await readable.wait()
                    readable.clear()
                    self.read_some()
            finally:
                self.since = self._events = None
                loop.remove_reader(events)

    def read_some(self) -> None:
        """Report the deaths that have arrived, up to RECORDS_AT_ONCE."""
        if (events := self._events) is None:
            return
        for _ in range(RECORDS_AT_ONCE):
            try:
                data, sender = events.recvfrom(_MAX_EVENT)
            except BlockingIOError:
                return
            except OSError:  # messages were lost
                if self.since is not None:
                    self.since = asyncio.get_running_loop().time()
                return
            if sender[0] != 0:
                continue  # a process may send messages, too
            if self.since is None and is_granted(data):  # a kernel without events sends nothing
                self.since = asyncio.get_running_loop().time()
            if (death := parse_signal_death(data)) is not None:
                self.died(*death)

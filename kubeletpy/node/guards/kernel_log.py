"""Records of the kernel's log, and the kills of the OOM killer in them. Pure.

Source: docs/reference/behaviour-resources.md, rf: OOM watcher. The kernel writes several records
about one kill: the first begins it, and the one on the killed process ends it. Processes choose
their names, and a writer to /dev/kmsg chooses whole texts: such a record is never treated as the
kernel's own.
"""

from __future__ import annotations

import re

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import number

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


def parse(data: bytes) -> KernelRecord | None:
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

"""Records of the kernel's log, and what they say of the OOM killer. Pure.

Source: docs/reference/behaviour-resources.md, rf: OOM watcher. The kernel writes several records
about one kill: the first begins it, and the killed process ends it. Processes choose their names,
and whoever may write to /dev/kmsg chooses whole texts: such a record is never taken for the
kernel's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubeletpy.host.kernel_text import number

MAX_NAME = 64
"""Characters of a process's name that are kept: the kernel has 15 bytes, each escaped as 4."""

_BEGIN = " invoked oom-killer:"
_IN_GROUP = "oom-kill:constraint=CONSTRAINT_MEMCG,"
_KILLED = re.compile(r"Killed process (?P<pid>\d{1,10}) \((?P<name>.*)\)", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of /dev/kmsg."""

    sequence: int
    """Its number since the machine was booted."""
    at_us: int
    """Microseconds since the machine was booted."""
    from_kernel: bool
    """Whether the kernel wrote it, not a process."""
    text: str


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed because the machine had no memory left."""

    sequence: int
    """Of the record that ended it."""
    process: str
    pid: int


def parse(data: bytes) -> Record | None:
    """A record as one read of /dev/kmsg gives it; None for what is none.

    ``PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];TEXT`` and then lines of tags, which are not read.
    """
    head, found, rest = data.partition(b";")
    fields = head.decode("ascii", errors="replace").split(",")
    if not found or len(fields) < 3:
        return None
    priority, sequence, at_us = (number(field) for field in fields[:3])
    if priority is None or sequence is None or at_us is None:
        return None
    text = rest.partition(b"\n")[0].decode("utf-8", errors="replace")
    # the facility is above the three bits of the level; 0 is the kernel, and nobody else gets it
    return Record(sequence, at_us, priority >> 3 == 0, text)


class Kills:
    """Puts records together to kills; holds no more than whether one has begun."""

    def __init__(self) -> None:
        self._begun = False

    def add(self, record: Record) -> Kill | None:
        """The next record; the kill that it ends, if it ends one.

        A kill in a cgroup at its limit is none: the container's status says so. The kernel says
        what was at its limit before any name that somebody else has chosen.
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

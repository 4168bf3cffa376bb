"""Resource usage of processes, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: now, and at the peak."""

    rss: int
    peak: int


def memory(pid: int) -> Memory:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return Memory(*(int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")))


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of processor time: of a process itself, and of the children that it waited for."""

    own: float
    children: float

    def __add__(self, other: Times) -> Times:
        return Times(self.own + other.own, self.children + other.children)

    def __sub__(self, other: Times) -> Times:
        return Times(self.own - other.own, self.children - other.children)


def cpu_times(pid: int) -> Times:
    """User and system times of a process and of its children, also of a zombie."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, children = fields[11:13], fields[13:15]
    return Times(sum(map(int, own)) * TICK, sum(map(int, children)) * TICK)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, in units of 10 ms."""
    return cpu_times(pid).own

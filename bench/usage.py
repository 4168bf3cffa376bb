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


def cpu_seconds(pid: int) -> float:
    """User and system time of a process with all its threads, in units of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def memory(pid: int) -> Memory:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return Memory(*(int(found[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")))

"""When this machine and this process started, according to the kernel's own clock.

Must never be used by a decision: it is read once, at startup.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_START_TICKS = 22
"""The field of /proc/PID/stat with the start time of the process (proc_pid_stat(5))."""


def booted_at(now: float) -> float:
    """When the machine was booted; ``now`` and the answer in Unix seconds."""
    return now - time.clock_gettime(time.CLOCK_BOOTTIME)


def process_started_at(now: float, stat: Path = Path("/proc/self/stat")) -> float:
    """When this process was started; ``now`` where the kernel does not show it. Unix seconds."""
    try:
        ticks = int(stat.read_text().rpartition(") ")[2].split()[_START_TICKS - 3])
    except (OSError, ValueError, IndexError):
        return now
    return min(booted_at(now) + ticks / os.sysconf("SC_CLK_TCK"), now)

"""Facts about this machine that settings depend on. Only reads files."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.config.rules import parse_cpuset
from kubeletpy.guards.kernel_settings import compare, refusal
from kubeletpy.guards.sysctls import read
from kubeletpy.host.kernel_text import lines


def cgroup_version(root: Path = Path("/sys/fs/cgroup")) -> int:
    """2 where the unified hierarchy is mounted at the root, else 1 (also for hybrid setups)."""
    return 2 if (root / "cgroup.controllers").exists() else 1


def swap_on(swaps: Path = Path("/proc/swaps")) -> bool:
    """Whether any swap is in use; the file's first line is its heading."""
    try:
        return len(lines(swaps.read_text(errors="replace"))) > 1
    except OSError:
        return False


def online_cpus(path: Path = Path("/sys/devices/system/cpu/online")) -> frozenset[int] | None:
    """The online CPUs; None when the kernel does not report them."""
    try:
        return parse_cpuset(path.read_text().strip())
    except OSError:
        return None


def wrong_kernel_settings(directory: Path = Path("/proc/sys")) -> str:
    """Which kernel settings do not suit a node, and what to do about it; ``""``: none."""
    return refusal(compare(read(directory)))

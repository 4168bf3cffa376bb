"""Abilities of a machine that tests need and that some machines lack."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def _cpuset() -> bool:
    offered = _CGROUPS / "cgroup.controllers"
    if offered.exists():
        return "cpuset" in offered.read_text().split()
    return (_CGROUPS / "cpuset").is_dir()


def _idmapped_tmpfs() -> bool:
    """Source: Linux 6.3, commit 7a80e5b8c6fa."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (6, 3)


def _address_translation() -> bool:
    """Whether iptables has the table nat."""
    try:
        done = subprocess.run(("iptables", "-t", "nat", "-S"), capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


ADDRESS_TRANSLATION = "address translation"
FOUND: Mapping[str, Callable[[], bool]] = {
    "two processors": lambda: (os.cpu_count() or 1) >= 2,
    "cpuset": _cpuset,
    "pressure stalls": Path("/proc/pressure/memory").exists,
    "huge pages": Path("/sys/kernel/mm/hugepages").is_dir,
    "id-mapped tmpfs": _idmapped_tmpfs,
    ADDRESS_TRANSLATION: _address_translation,
}
"""Name, as in ``@pytest.mark.needs`` and ``--lacking``, and whether this machine has it."""

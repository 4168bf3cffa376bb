"""The machine as the guards access it: what a simulation does without."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.structs import Struct
from kubeletpy.node.guards.iptables import Run, run_command
from kubeletpy.node.guards.oom_watch import open_kernel_log
from kubeletpy.resources.cgroups.detect import detect
from kubeletpy.resources.cgroups.errors import CgroupError
from kubeletpy.resources.cgroups.processes import ProcessGroups


class GuardedHost(Struct, frozen=True):
    """Where things are on a machine, and how its programs are run."""

    proc: Path = Path("/proc")
    open_kernel_log: Callable[[], int] = open_kernel_log
    run: Run = run_command
    own_pid: int = 0
    """This agent's."""
    groups: ProcessGroups | None = None
    """None: the machine has no cgroups."""

    @property
    def kernel_settings(self) -> Path:
        """The directory of the kernel's settings."""
        return self.proc / "sys"


def this_machine() -> GuardedHost:
    """The one that this process runs on."""
    try:
        groups = ProcessGroups(detect())
    except CgroupError:
        groups = None
    return GuardedHost(own_pid=os.getpid(), groups=groups)

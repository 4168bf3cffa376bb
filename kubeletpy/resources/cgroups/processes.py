"""Lists the processes in a cgroup, and moves one there. A few system calls each.

Must never take a process out of a cgroup that the caller did not name.
"""

from __future__ import annotations

import errno
from pathlib import Path

from kubeletpy.base.text import lines, number
from kubeletpy.resources.cgroups.errors import CgroupError
from kubeletpy.resources.cgroups.filesystem import CgroupFilesystem, safe_path
from kubeletpy.resources.cgroups.values import CgroupResources

ROOT = "/"
_ACCOUNTING = ("cpu", "cpuacct", "memory", "pids")
"""Controllers in whose hierarchies (v1) a process is moved: those that account for daemons."""


class ProcessGroups:
    """The processes of this machine's cgroups."""

    def __init__(self, files: CgroupFilesystem) -> None:
        self._files = files
        found = (files.hierarchies.get(name) for name in _ACCOUNTING)
        self._mounts = tuple(dict.fromkeys(mount for mount in found if mount is not None))

    def in_none(self) -> set[int]:
        """Processes that nobody has put into a cgroup: those in the root of each hierarchy."""
        return set.intersection(*(self._listed(mount, ROOT) for mount in self._mounts))

    def create(self, path: str) -> None:
        """Create a cgroup that processes can be put into. Raises CgroupError."""
        self._files.create(path, CgroupResources())
        for mount in self._mounts:
            try:
                self._directory(mount, path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CgroupError(f"cgroup {path} cannot be created in {mount}: {error}") from error

    def move_process(self, pid: int, path: str) -> None:
        """Move a process into a cgroup; one that has exited is ignored. Raises CgroupError."""
        for mount in self._mounts:
            if pid in self._listed(mount, path):
                continue
            try:
                (self._directory(mount, path) / "cgroup.procs").write_text(str(pid))
            except OSError as error:
                if error.errno == errno.ESRCH:
                    return
                why = (
                    f"process {pid} can not be put into cgroup {path} of {mount}: {error.strerror}"
                )
                raise CgroupError(why) from error

    def _listed(self, mount: Path, path: str) -> set[int]:
        try:
            text = (self._directory(mount, path) / "cgroup.procs").read_text(errors="replace")
        except OSError:
            return set()
        return {pid for line in lines(text) if (pid := number(line)) is not None}

    def _directory(self, mount: Path, path: str) -> Path:
        return mount if path == ROOT else Path(f"{mount}{safe_path(path)}")

"""The edge to the kernel: directories and files of the cgroup v1 hierarchies or the v2 one.

Paths are below the hierarchies' mount points and come from names.py. Every method is a few system
calls on an in-memory file system, some tens of microseconds each. They run in place: a thread would
cost more. Must never follow a path out of the hierarchies, nor remount anything.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.resources.cgroups.errors import CgroupBusy, CgroupError
from kubeletpy.resources.cgroups.values import CgroupResources, v1_files, v2_files

log = logging.getLogger(__name__)

USED = ("cpu", "memory", "pids", "hugetlb")
"""Controllers that the agent writes to. Others are the runtime's business."""
NEEDED = ("cpu", "memory", "pids")
"""Controllers (where the machine has them) that a pod's cgroup must be in to count as present."""
DELEGATED = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids", "rdma", "misc")
"""Controllers of v2 that are delegated to pods, so that a runtime can use them."""
MAX_VISITED = 20_000
"""The most directories visited below one pod's cgroup: a privileged container can make many."""
KILL_ATTEMPTS = 5
_MODE = 0o755
"""Mode of a cgroup's directory: users of a container's own must search the path to its cgroup.

Without this Linux 6.1 and 6.12 do not let runc mount that cgroup in the container; 7.2 does.
"""
_BUSY = (errno.EBUSY, errno.ENOTEMPTY)


class CgroupFilesystem:
    """The hierarchies of this machine. Make it with :func:`~kubeletpy.resources.cgroups.detect.detect`."""

    def __init__(self, version: int, hierarchies: Mapping[str, Path], others: tuple[Path, ...]):
        """Args:
        version: 1 or 2.
        hierarchies: controller -> mount point of the hierarchy that has it.
        others: mount points of hierarchies without a controller that the agent uses; a runtime
            makes directories there too.
        """
        self.version = version
        self.hierarchies = dict(hierarchies)
        self.others = others
        self._used = {name: hierarchies[name] for name in USED if name in hierarchies}
        self._needed = tuple(
            dict.fromkeys(str(hierarchies[name]) for name in NEEDED if name in hierarchies)
        )
        self._made = tuple(dict.fromkeys((*self._needed, *map(str, self._used.values()))))
        every = (*hierarchies.values(), *others)
        self._every = tuple(dict.fromkeys(str(mount) for mount in every))

    # -- making ------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Whether a cgroup is in every hierarchy where it is needed."""
        path = safe_path(path)
        return all(os.access(mount + path, os.F_OK) for mount in self._needed)

    def create(self, path: str, resources: CgroupResources, *, group: bool = False) -> None:
        """Create a cgroup and its parents, or reuse what exists, and set its limits.

        ``group``: its children are limited too. Raises CgroupError.
        """
        path = safe_path(path)
        for mount in self._made:
            self._create_cgroup(mount, path)
        if group and self.version == 2:
            self._delegate(self._made[0], path)
        self.write(path, resources)

    def write(self, path: str, resources: CgroupResources) -> None:
        """Set the limits that are given and that this machine supports. Raises CgroupError."""
        path = safe_path(path)
        lines = v1_files(resources) if self.version == 1 else v2_files(resources)
        refused: list[tuple[str, str]] = []
        for controller, name, text in lines:
            mount = self._used.get(controller)
            if mount is None:
                continue
            file = f"{mount}{path}/{name}"
            try:
                _write(file, text)
            except FileNotFoundError:
                if not Path(f"{mount}{path}").is_dir():
                    raise CgroupError(f"cgroup {path} is not there ({controller})") from None
                log.debug("cgroup has no such file", extra={"file": file})
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise CgroupError(
                        f"cgroup {path}: writing {text} to {name}: {error}"
                    ) from error
                refused.append((file, text))
        for file, text in refused:  # a new period may not suit the old quota: that is new now
            try:
                _write(file, text)
            except OSError as error:
                name = file.rpartition("/")[2]
                raise CgroupError(f"cgroup {path}: writing {text} to {name}: {error}") from error

    async def settle(self, path: str | None = None) -> None:
        """Wait until every limit written so far lasts, of one cgroup or of all.

        Files of a cgroup that only the agent writes last by themselves. Raises CgroupError.
        """

    async def released(self, path: str) -> None:
        """A cgroup was removed for good: end what else keeps it. Raises CgroupError."""

    async def close(self) -> None:
        """Free what the limits needed besides files."""

    def read_file(self, path: str, controller: str, name: str) -> str:
        """The stripped text of one file; empty if it cannot be read."""
        mount = self._used.get(controller)
        if mount is None:
            return ""
        try:
            return Path(f"{mount}{safe_path(path)}/{name}").read_text().strip()
        except OSError:
            return ""

    # -- removing ----------------------------------------------------------------------------

    def children(self, path: str) -> set[str]:
        """Names of the direct children of a cgroup, in any hierarchy."""
        path = safe_path(path)
        return {
            found.rpartition("/")[2]
            for mount in self._every
            for found in _directories(mount + path)
        }

    def find(self, wanted: Callable[[str], bool]) -> str | None:
        """The path of a cgroup with a requested name; None: there is none among MAX_VISITED.

        Parents come first, so that what lies deep in one branch hides nothing. Blocking, some
        milliseconds per thousand cgroups: call it in a thread.
        """
        return next(self._named(wanted, ""), None)

    def find_running(self, wanted: Callable[[str], bool], without: str) -> list[str]:
        """Paths of cgroups with processes with requested names, except below ``without``.

        Bounded and blocking like :meth:`find`.
        """
        mount = self._needed[0]
        return [
            path
            for path in self._named(wanted, without)
            if any(_processes(directory) for directory in _walk(mount + path))
        ]

    def _named(self, wanted: Callable[[str], bool], without: str) -> Iterator[str]:
        mount = self._needed[0]
        waiting, seen = deque([mount]), 0
        while waiting and seen < MAX_VISITED:
            seen += 1
            for directory in _directories(waiting.popleft()):
                path = directory.removeprefix(mount)
                if path == without:
                    continue
                if wanted(path.rpartition("/")[2]):
                    yield path
                else:
                    waiting.append(directory)

    def remove(self, path: str) -> bool:
        """Remove a cgroup without processes; whether it is absent from every hierarchy.

        Raises CgroupError.
        """
        path = safe_path(path)
        absent = [self._rmdir(mount + path) for mount in self._every]
        return all(absent)

    def remove_tree(self, path: str) -> None:
        """Kill everything in a cgroup and below it, and remove the whole subtree.

        Raises:
            CgroupBusy: processes are still exiting; try again a little later.
            CgroupError: it cannot be removed.
        """
        path = safe_path(path)
        trees = [list(_walk(mount + path)) for mount in self._every]
        self._kill(path, [directory for tree in trees for directory in tree])
        absent = [self._rmdir(directory) for tree in trees for directory in reversed(tree)]
        if not all(absent):
            raise CgroupBusy(f"cgroup {path} still has processes or children")

    def _kill(self, path: str, directories: list[str]) -> None:
        if self.version == 2:
            with contextlib.suppress(OSError):  # before Linux 5.14, or already removed
                _write(f"{self._made[0]}{path}/cgroup.kill", "1")
                return
        for _ in range(KILL_ATTEMPTS):
            pids = {pid for directory in directories for pid in _processes(directory)}
            pids -= {0, 1, os.getpid()}
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                except OSError as error:
                    raise CgroupError(f"cgroup {path}: process {pid}: {error}") from error

    # -- directories -------------------------------------------------------------------------

    def _mkdir(self, directory: str) -> None:
        Path(directory).mkdir(mode=_MODE)
        _let_all_search(directory)

    def _rmdir(self, directory: str) -> bool:
        try:
            Path(directory).rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise CgroupError(f"{directory} cannot be removed: {error}") from error
        return True

    def _create_cgroup(self, mount: str, path: str) -> None:
        try:
            self._mkdir(mount + path)
        except FileExistsError:
            with contextlib.suppress(OSError):
                _let_all_search(mount + path)
        except FileNotFoundError as error:
            parent = path.rpartition("/")[0]
            if not parent:
                raise CgroupError(f"no cgroup hierarchy at {mount}") from error
            self._create_cgroup(mount, parent)
            if self.version == 2:
                self._delegate(mount, parent)
            self._create_cgroup(mount, path)
        except OSError as error:
            raise CgroupError(f"cgroup {path} cannot be created in {mount}: {error}") from error

    def _delegate(self, mount: str, path: str) -> None:
        """Delegate controllers to the children of a cgroup and of all its ancestors (v2)."""
        parts = path.strip("/").split("/")
        for depth in range(len(parts) + 1):
            directory = "/".join([mount, *parts[:depth]])
            try:
                offered = Path(f"{directory}/cgroup.controllers").read_text().split()
                given = Path(f"{directory}/cgroup.subtree_control").read_text().split()
            except OSError as error:
                raise CgroupError(f"cgroup {directory} cannot be read: {error}") from error
            for name in DELEGATED:
                if name not in offered or name in given:
                    continue
                try:
                    _write(f"{directory}/cgroup.subtree_control", f"+{name}")
                except OSError as error:
                    if name not in NEEDED:
                        continue
                    raise CgroupError(
                        f"cgroup {directory} cannot delegate {name} down to pods: {error}; it must "
                        "have no processes of its own"
                    ) from error


def safe_path(path: str) -> str:
    """The real path below a hierarchy's mount point. Raises CgroupError: it leads outside."""
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
        raise CgroupError(f"not the path of a cgroup: {path[:200]!r}")
    if "\0" in path:
        raise CgroupError("a path of a cgroup has a NUL in it")
    return path


def _let_all_search(directory: str) -> None:
    """Give a directory its mode, also under the umask of deploy's unit."""
    made = Path(directory)
    if stat.S_IMODE(made.stat().st_mode) != _MODE:
        made.chmod(_MODE)


def _write(file: str, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    try:
        with complete_errors(file):
            os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _directories(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _walk(directory: str) -> Iterator[str]:
    """A directory and all below it, parents first; at most MAX_VISITED."""
    waiting, seen = [directory], 0
    while waiting and seen < MAX_VISITED:
        current = waiting.pop()
        seen += 1
        yield current
        waiting += _directories(current)


def _processes(directory: str) -> list[int]:
    try:
        return [int(line) for line in Path(directory, "cgroup.procs").read_text().split()]
    except OSError:
        return []

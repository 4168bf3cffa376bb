"""The kernel's cgroup files: directories and files of the cgroup v1 hierarchies or the v2 one.

Paths are below the hierarchies' mount points and come from :mod:`.values`. Every method is a few
system calls on an in-memory file system, some tens of microseconds each. They run in place: a
thread would cost more. No path leads out of the hierarchies, and nothing is mounted.
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

from msgspec import structs

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.text import lines, number
from kubeletpy.pods.resources import shares_to_weight, weight_to_shares
from kubeletpy.resources.cgroups import values

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
    """The hierarchies of this machine, as :func:`detect` finds them."""

    def __init__(self, version: int, hierarchies: Mapping[str, Path], others: tuple[Path, ...]):
        """Use the hierarchies at their mount points.

        Args:
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

    def create(self, path: str, resources: values.CgroupResources, *, group: bool = False) -> None:
        """Create a cgroup and its parents, or reuse what exists, and set its limits.

        ``group``: its children are limited too. Raises CgroupError.
        """
        path = safe_path(path)
        for mount in self._made:
            self._create_cgroup(mount, path)
        if group and self.version == 2:
            self._delegate(self._made[0], path)
        self.write(path, resources)

    def write(self, path: str, resources: values.CgroupResources) -> None:
        """Set those of the limits that this machine supports. Raises CgroupError."""
        path = safe_path(path)
        lines = values.v1_files(resources) if self.version == 1 else values.v2_files(resources)
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
                    raise values.CgroupError(f"cgroup {path} is not there ({controller})") from None
                log.debug("cgroup has no such file", extra={"file": file})
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise values.CgroupError(
                        f"cgroup {path}: writing {text} to {name}: {error}"
                    ) from error
                refused.append((file, text))
        for file, text in refused:  # a new period may not suit the old quota: that is new now
            try:
                _write(file, text)
            except OSError as error:
                name = file.rpartition("/")[2]
                raise values.CgroupError(
                    f"cgroup {path}: writing {text} to {name}: {error}"
                ) from error

    async def settle(self, path: str | None = None) -> None:
        """Wait until every limit written so far lasts, of one cgroup or of all.

        Files of a cgroup that only the agent writes last by themselves. Raises CgroupError.
        """

    async def released(self, path: str) -> None:
        """End whatever else keeps a cgroup that was removed for good. Raises CgroupError."""

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

    def find(self, matches: Callable[[str], bool]) -> str | None:
        """Return the path of a cgroup whose name matches, or None if none of MAX_VISITED does.

        Parents come first, so that what lies deep in one branch hides nothing. Blocking, some
        milliseconds per thousand cgroups: call it in a thread.
        """
        return next(self._named(matches, ""), None)

    def find_running(self, matches: Callable[[str], bool], without: str) -> list[str]:
        """Return the paths of cgroups that match and have processes, except below ``without``.

        Bounded and blocking like :meth:`find`.
        """
        mount = self._needed[0]
        return [
            path
            for path in self._named(matches, without)
            if any(_processes(directory) for directory in _walk(mount + path))
        ]

    def _named(self, matches: Callable[[str], bool], without: str) -> Iterator[str]:
        mount = self._needed[0]
        waiting, seen = deque([mount]), 0
        while waiting and seen < MAX_VISITED:
            seen += 1
            for directory in _directories(waiting.popleft()):
                path = directory.removeprefix(mount)
                if path == without:
                    continue
                if matches(path.rpartition("/")[2]):
                    yield path
                else:
                    waiting.append(directory)

    def remove(self, path: str) -> bool:
        """Remove a cgroup without processes; return whether it is absent from every hierarchy.

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
            raise values.CgroupBusy(f"cgroup {path} still has processes or children")

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
                    raise values.CgroupError(f"cgroup {path}: process {pid}: {error}") from error

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
            raise values.CgroupError(f"{directory} cannot be removed: {error}") from error
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
                raise values.CgroupError(f"no cgroup hierarchy at {mount}") from error
            self._create_cgroup(mount, parent)
            if self.version == 2:
                self._delegate(mount, parent)
            self._create_cgroup(mount, path)
        except OSError as error:
            raise values.CgroupError(
                f"cgroup {path} cannot be created in {mount}: {error}"
            ) from error

    def _delegate(self, mount: str, path: str) -> None:
        """Delegate controllers to the children of a cgroup and of all its ancestors (v2)."""
        parts = path.strip("/").split("/")
        for depth in range(len(parts) + 1):
            directory = "/".join([mount, *parts[:depth]])
            try:
                offered = Path(f"{directory}/cgroup.controllers").read_text().split()
                delegated = Path(f"{directory}/cgroup.subtree_control").read_text().split()
            except OSError as error:
                raise values.CgroupError(f"cgroup {directory} cannot be read: {error}") from error
            for name in DELEGATED:
                if name not in offered or name in delegated:
                    continue
                try:
                    _write(f"{directory}/cgroup.subtree_control", f"+{name}")
                except OSError as error:
                    if name not in NEEDED:
                        continue
                    raise values.CgroupError(
                        f"cgroup {directory} cannot delegate {name} down to pods: {error}; it must "
                        "have no processes of its own"
                    ) from error


def safe_path(path: str) -> str:
    """Return a path below a hierarchy's mount point. Raises CgroupError if it leads outside."""
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(part in ("", ".", "..") for part in parts[1:]):
        raise values.CgroupError(f"not the path of a cgroup: {path[:200]!r}")
    if "\0" in path:
        raise values.CgroupError("a path of a cgroup has a NUL in it")
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
    """Yield a directory and all below it, parents first; at most MAX_VISITED."""
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


# Reading the cpu and memory limits of a pod. Source: docs/reference/behaviour.md, c10.

PAGE = 4096
_V1_UNLIMITED = 1 << 62
"""cgroup v1 shows "no limit" as the largest number of whole pages."""


def read_limits(version: int, read: Callable[[str, str], str]) -> values.CgroupResources | None:
    """Return shares, quota, period and memory, or None if a file is missing or malformed.

    ``read(controller, file)`` returns a file's text, empty when it can't be read.
    """
    try:
        return _v1(read) if version == 1 else _v2(read)
    except ValueError:
        return None


def memory_usage(version: int, read: Callable[[str, str], str]) -> int | None:
    """Return the bytes in use, page cache included, or None if they can't be read."""
    name = "memory.usage_in_bytes" if version == 1 else "memory.current"
    return number(read("memory", name))


def as_requested(
    version: int, found: values.CgroupResources, desired: values.CgroupResources
) -> values.CgroupResources:
    """Return the limits found, as the values requested where they were merely rounded.

    The kernel keeps memory in whole pages, and cgroup v2 has fewer weights than v1 has shares;
    systemd keeps a whole percentage of a CPU.
    """
    shares, memory = found.shares, found.memory
    if version == 2 and desired.shares is not None:
        rounded = weight_to_shares(shares_to_weight(desired.shares))
        shares = desired.shares if shares == rounded else shares
    if memory is not None and desired.memory and memory == desired.memory // PAGE * PAGE:
        memory = desired.memory
    quota = found.quota_us
    period = desired.period_us
    if desired.quota_us and period and period == found.period_us:
        quota = (
            desired.quota_us if quota == values.rounded_quota(desired.quota_us, period) else quota
        )
    return replace(found, shares=shares, memory=memory, quota_us=quota)


def with_more(
    known: values.CgroupResources | None, more: values.CgroupResources
) -> values.CgroupResources:
    """Return the known limits, replaced by those of ``more`` that are set."""
    if known is None:
        return more
    changed = {name: it for name, it in structs.asdict(more).items() if it not in (None, {})}
    return replace(known, **changed)


def _v1(read: Callable[[str, str], str]) -> values.CgroupResources:
    memory = int(read("memory", "memory.limit_in_bytes"))
    return values.CgroupResources(
        shares=int(read("cpu", "cpu.shares")),
        quota_us=int(read("cpu", "cpu.cfs_quota_us")),
        period_us=int(read("cpu", "cpu.cfs_period_us")),
        memory=values.NO_LIMIT if memory >= _V1_UNLIMITED else memory,
    )


def _v2(read: Callable[[str, str], str]) -> values.CgroupResources:
    quota, period = read("cpu", "cpu.max").split()
    return values.CgroupResources(
        shares=weight_to_shares(int(read("cpu", "cpu.weight"))),
        quota_us=_or_unlimited(quota),
        period_us=int(period),
        memory=_or_unlimited(read("memory", "memory.max")),
    )


def _or_unlimited(text: str) -> int:
    return values.NO_LIMIT if text == "max" else int(text)


# Processes.

ROOT = "/"
_ACCOUNTING = ("cpu", "cpuacct", "memory", "pids")
"""Controllers in whose hierarchies (v1) a process is moved: those that account for daemons."""


class ProcessGroups(Component):
    """Lists the processes of this machine's cgroups, and moves one into a named cgroup."""

    files: CgroupFilesystem

    def __post_init__(self) -> None:
        found = (self.files.hierarchies.get(name) for name in _ACCOUNTING)
        self._mounts = tuple(dict.fromkeys(mount for mount in found if mount is not None))

    def in_none(self) -> set[int]:
        """Return the processes in no cgroup: those in the root of each hierarchy."""
        return set.intersection(*(self._listed(mount, ROOT) for mount in self._mounts))

    def create(self, path: str) -> None:
        """Create a cgroup that processes can be put into. Raises CgroupError."""
        self.files.create(path, values.CgroupResources())
        for mount in self._mounts:
            try:
                self._directory(mount, path).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise values.CgroupError(
                    f"cgroup {path} cannot be created in {mount}: {error}"
                ) from error

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
                raise values.CgroupError(why) from error

    def _listed(self, mount: Path, path: str) -> set[int]:
        try:
            text = (self._directory(mount, path) / "cgroup.procs").read_text(errors="replace")
        except OSError:
            return set()
        return {pid for line in lines(text) if (pid := number(line)) is not None}

    def _directory(self, mount: Path, path: str) -> Path:
        return mount if path == ROOT else Path(f"{mount}{safe_path(path)}")


# Detection.

MOUNT_POINT = Path("/sys/fs/cgroup")


def detect(mount_point: Path = MOUNT_POINT) -> CgroupFilesystem:
    """Return the hierarchies mounted below a mount point, in either version.

    v1 mixed with an empty v2 tree ("hybrid") is v1.

    Raises:
        CgroupsUnavailable: none are mounted, or one that is needed is missing.
    """
    if (mount_point / "cgroup.controllers").is_file():
        version = 2
        others: tuple[Path, ...] = ()
        offered = (mount_point / "cgroup.controllers").read_text().split()
        found = dict.fromkeys(offered, mount_point)
    else:
        version = 1
        found, others = _hierarchies(mount_point)
    missing = [name for name in ("cpu", "memory") if name not in found]
    if missing:
        raise values.CgroupsUnavailable(
            f"no cgroup controller {' or '.join(missing)} at {mount_point}: mount the cgroup file "
            "systems, or set cgroupsPerQOS to false and enforceNodeAllocatable to [none]"
        )
    return CgroupFilesystem(version, found, others)


def _hierarchies(mount_point: Path) -> tuple[dict[str, Path], tuple[Path, ...]]:
    """Return v1's hierarchy of each controller, and those without one (systemd, unified)."""
    found: dict[str, Path] = {}
    others: list[Path] = []
    try:
        entries = sorted(entry for entry in mount_point.iterdir() if entry.is_dir())
    except OSError:
        entries = []
    for entry in entries:
        if entry.is_symlink() or not (entry / "cgroup.procs").exists():
            continue
        if entry.name in ("systemd", "unified"):
            others.append(entry)
        for name in entry.name.split(","):
            found[name] = entry
    return found, tuple(others)

"""emptyDir volumes: a directory, a tmpfs or huge pages; also directories of other volumes.

Functions without side effects decide what a pod gets; the rest is blocking, for threads. Source:
docs/reference/behaviour.md, i2, i13.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kubeletpy.base.api.quantity import parse, value
from kubeletpy.base.text import number
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import HUGEPAGES_PREFIX, VolumeSizeError, pod_level_limit, pod_limits
from kubeletpy.pods.shape import MAX_MODE
from kubeletpy.volumes.files.syscalls import (
    MS_REMOUNT,
    REQUIRED,
    MountRights,
    is_mount_point,
    mount,
)

MODE = 0o777
PRIVATE_MODE = 0o700
"""Of a directory that replaces a mount, and of no other one."""
MODE_GATE = "EmptyDirVolumeMode"
MEMORY = "Memory"
HUGE_PAGES = "HugePages"
_HUGE_PAGES_DIR = "/sys/kernel/mm/hugepages"


class EmptyDirError(Exception):
    """The volume cannot be made as the spec requires; the message contains the reason."""


def memory_size(source: Mapping[str, Any], pod: Pod, allocatable: str | None) -> int:
    """Bytes of a memory volume: the minimum of its own, the pod's and the node's limit; 0: none.

    Raises:
        EmptyDirError: an amount is not a quantity.
    """
    try:
        limits = [value(source.get("sizeLimit") or "0"), _memory_limit(pod)]
        limits.append(value(allocatable or "0"))
    except ValueError as error:
        raise EmptyDirError(f"sizeLimit or memory limit: {error}") from error
    return min((limit for limit in limits if limit > 0), default=0)


def _memory_limit(pod: Pod) -> int:
    """The memory limit of the pod's cgroup; 0 when it has none."""
    of_pod = pod_level_limit(pod, "memory")
    if of_pod:
        return value(of_pod)
    for container in (*pod.init_containers, *pod.containers):
        if not ((container.get("resources") or {}).get("limits") or {}).get("memory"):
            return 0
    return int(pod_limits(pod).get("memory", 0))


def page_size(medium: str, pod: Pod) -> int:
    """Bytes of one huge page for a medium ``HugePages`` or ``HugePages-{size}``.

    Raises:
        EmptyDirError: containers request no huge pages, or several sizes.
    """
    asked = sorted(set(_huge_page_names(pod)))
    if medium == HUGE_PAGES:
        if len(asked) != 1:
            what = ", ".join(asked) or "none"
            raise EmptyDirError(
                "medium HugePages: containers must request huge pages of one size, they request "
                f"{what}; use medium HugePages-<size>"
            )
        name = asked[0]
    else:
        name = HUGEPAGES_PREFIX + medium.removeprefix(f"{HUGE_PAGES}-")
        if name not in asked:
            raise EmptyDirError(f"medium {medium}: no container requests {name}")
    try:
        return value(name.removeprefix(HUGEPAGES_PREFIX))
    except ValueError as error:
        raise EmptyDirError(f"medium {medium}: {error}") from error


def _huge_page_names(pod: Pod) -> Iterator[str]:
    for container in (*pod.init_containers, *pod.containers):
        resources: Mapping[str, Any] = container.get("resources") or {}
        for field in ("requests", "limits"):
            for name, amount in (resources.get(field) or {}).items():
                if name.startswith(HUGEPAGES_PREFIX) and parse(amount) > 0:
                    yield name


def own_mode(source: Mapping[str, Any], *, obeyed: bool) -> int | None:
    """The mode that a volume requests; None: none, or the feature gate is off (not obeyed)."""
    mode = source.get("mode") if obeyed else None
    return None if mode is None else mode & MAX_MODE


def set_up_empty_dir(
    directory: str,
    source: Mapping[str, Any],
    pod: Pod,
    allocatable_memory: str | None,
    mode: int | None = None,
    *,
    rights: MountRights = REQUIRED,
) -> None:
    """Make the volume; an existing one keeps its files.

    Args:
        directory: where it is made.
        source: the pod's ``emptyDir``.
        pod: whose it is.
        allocatable_memory: the node's, which bounds a volume in memory.
        mode: of its top directory, whatever its medium; None: that of the medium.
        rights: whether a directory may replace a mount.

    Raises:
        EmptyDirError: the medium is unavailable.
        OSError: it could not be made.
    """
    medium = source.get("medium") or ""
    if medium == "":
        make_directory(directory)
    elif medium == MEMORY:
        make_tmpfs(directory, memory_size(source, pod, allocatable_memory), rights)
    elif medium.startswith(HUGE_PAGES):
        _make_huge_pages(directory, medium, pod)
    else:
        raise EmptyDirError(f"unknown storage medium {medium!r}")
    if mode is not None:
        Path(directory).chmod(mode)  # of the mounted file system, if there is one


def make_directory(directory: str) -> None:
    """A world-writable directory, with its parents. Raises OSError."""
    path = Path(directory)
    if path.is_dir():
        return
    path.mkdir(MODE, parents=True, exist_ok=True)
    path.chmod(MODE)  # regardless of the umask


def make_tmpfs(directory: str, size: int, rights: MountRights = REQUIRED) -> None:
    """An in-memory directory of at most ``size`` bytes (0: kernel's default).

    Raises OSError, unless a directory for this user alone may replace it.
    """
    make_directory(directory)
    if is_in_memory(directory, rights):
        return
    try:
        _mount_tmpfs(directory, size)
    except OSError as error:
        if not rights.does_without(error):
            raise
        Path(directory).chmod(PRIVATE_MODE)


def is_in_memory(directory: str, rights: MountRights) -> bool:
    """Whether a directory is a mount, or replaces one."""
    return is_mount_point(directory) or replaces_mount(directory, rights)


def replaces_mount(directory: str, rights: MountRights) -> bool:
    """Whether a directory is there because the kernel refused its mount."""
    try:
        mode = os.lstat(directory).st_mode
    except FileNotFoundError:
        return False
    if rights.required or is_mount_point(directory):
        return False
    return stat.S_ISDIR(mode) and stat.S_IMODE(mode) == PRIVATE_MODE


def _mount_tmpfs(directory: str, size: int) -> None:
    options = [f"size={size}"] if size else []
    try:
        mount("tmpfs", directory, "tmpfs", data=",".join([*options, "noswap"]))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        mount("tmpfs", directory, "tmpfs", data=",".join(options))


def resize_tmpfs(directory: str, size: int, rights: MountRights = REQUIRED) -> None:
    """Give a mounted in-memory directory another size in bytes; its files stay.

    A directory that replaces a mount has no size.

    Raises:
        VolumeSizeError: it is not mounted, or more than that is in use.
    """
    if not is_mount_point(directory):
        if is_in_memory(directory, rights):
            return
        raise VolumeSizeError("it is not mounted; the resize is retried")
    try:
        mount("tmpfs", directory, "tmpfs", MS_REMOUNT, f"size={size}")
    except OSError as error:
        why = f"remount with size={size}: {error.strerror}"
        if error.errno == errno.EINVAL and (used := _bytes_used(directory)) > size:
            why = f"{why}: {used} bytes are in use; the resize is retried"
        raise VolumeSizeError(why) from error


def _bytes_used(directory: str) -> int:
    found = os.statvfs(directory)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _make_huge_pages(directory: str, medium: str, pod: Pod) -> None:
    size = page_size(medium, pod)
    known = Path(_HUGE_PAGES_DIR, f"hugepages-{size // 1024}kB", "nr_hugepages")
    try:
        reserved = number(known.read_text(errors="replace"))
    except OSError:
        reserved = None
    if not reserved:
        raise EmptyDirError(
            f"medium {medium}: this node has no huge pages of {size // 1024} KiB reserved "
            "(vm.nr_hugepages)"
        )
    make_directory(directory)
    if not is_mount_point(directory):
        mount("nodev", directory, "hugetlbfs", data=f"pagesize={size}")
        os.chmod(directory, MODE)  # noqa: PTH101 - the root of the new file system

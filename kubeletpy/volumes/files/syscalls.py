"""mount(2), umount2(2) and the mount table: the kernel's side of volumes.

Blocking, for threads. Must never follow a link when it unmounts, and never put mount data into an
error.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from pathlib import Path

from kubeletpy.host import mount_table

MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SHARED = 1 << 20
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError naming the target."""
    failed = _libc().mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    if failed:
        _raise(target)


def unmount(target: str) -> None:
    """umount2(2) of the topmost mount at a path, never through a link. Raises OSError."""
    if _libc().umount2(os.fsencode(target), _UMOUNT_NOFOLLOW):
        _raise(target)


def detach(target: str) -> None:
    """Remove the topmost mount at a path from the tree without waiting for its file system, never
    through a link. Raises OSError."""
    if _libc().umount2(os.fsencode(target), _UMOUNT_NOFOLLOW | _MNT_DETACH):
        _raise(target)


def mounts_below(directory: str) -> list[str]:
    """Mount points at or below a directory, in the order to unmount them. Raises OSError."""
    path = os.path.realpath(directory)
    return mount_table.mounts_below(table(path), path)


def is_mount_point(directory: str) -> bool:
    """Whether another file system is mounted here (bind mounts of the same one do not count)."""
    try:
        return os.lstat(directory).st_dev != os.lstat(os.path.dirname(directory)).st_dev  # noqa: PTH120
    except FileNotFoundError:
        return False


def share(directory: str) -> None:
    """Make mounts below a directory visible both to the node and to containers that request it.

    Unless the node's file systems are already shared, the directory becomes a mount of its own,
    like the kubelet's root directory.

    Raises:
        OSError: it failed; EBUSY: mounts exist below it, which a mount of its own would hide.
    """
    path = os.path.realpath(directory)
    mounts = table()
    if mount_table.is_shared(mounts, path):
        return
    below = mount_table.mounts_below(mounts, path)
    if path not in below:
        if below:
            raise OSError(errno.EBUSY, "it has mounts below it that are not shared", path)
        mount(path, path, flags=MS_BIND)
    mount("none", path, flags=MS_SHARED | MS_REC)


def table(containing: str = "") -> list[mount_table.MountPoint]:
    """The mount table: all of it, or at least the mounts whose path contains a text."""
    return mount_table.parse(Path("/proc/self/mountinfo").read_bytes(), containing)


def _raise(target: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), target)

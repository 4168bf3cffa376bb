"""mount(2), umount2(2) and the mount table: the kernel's side of volumes.

Blocking, for threads. Must never follow a link when it unmounts, and never put mount data into an
error.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import logging
import os
from pathlib import Path

from kubeletpy.base.host import mount_table

log = logging.getLogger(__name__)

MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SHARED = 1 << 20
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


class MountRights:
    """What happens to volumes whose mounts the kernel refuses.

    A node needs them: without tmpfs, secrets would be on its disk. The agent of a plain user is a
    guest of another program, and does without them. A user and mount namespace does not help it.
    unshare(2) refuses one to a process with threads, and would change what the program itself may
    do and sees. A process beside it could mount, but the runtime, which is an object of the
    program, and the processes that it starts read volumes by their paths from outside of that
    namespace; containers outlive the agent, and the namespace would end with it. A program that
    runs in such a namespace anyway (``unshare --map-root-user --mount``) may mount and gets mounts.
    """

    def __init__(self, *, required: bool = True) -> None:
        """``required``: a refused mount is an error; otherwise a directory replaces it."""
        self.required = required
        self._reported = False

    def does_without(self, error: OSError) -> bool:
        """Whether a mount that failed is replaced by a directory; the first one is logged."""
        if self.required or error.errno not in (errno.EPERM, errno.EACCES):
            return False
        if not self._reported:
            self._reported = True
            log.warning(
                "the kernel refuses mounts to this user: secrets, tokens and volumes in memory are "
                "directories with mode 0700 on the disk, without a size limit, and a subPath is a "
                "path that containers can replace; start the program with `unshare "
                "--map-root-user --mount` if that matters",
                extra={"user": os.geteuid(), "why": str(error)},
            )
        return True


REQUIRED = MountRights()


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

"""mount(2) and umount2(2), and what is mounted: the kernel's side of volumes.

Blocking, for threads. Must never follow a link when it unmounts, and never put mount data into an
error.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import re
from pathlib import Path

MS_BIND = 0x1000
MS_REC = 0x4000
MS_SHARED = 1 << 20
_UMOUNT_NOFOLLOW = 8
_ESCAPED = re.compile(r"\\([0-7]{3})")


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


def mounts_below(directory: str) -> list[str]:
    """Mount points at or below a directory, in the order to unmount them. Raises OSError."""
    mountinfo = Path("/proc/self/mountinfo").read_bytes().decode("utf-8", "surrogateescape")
    return parse_mounts_below(mountinfo, os.path.realpath(directory))


def parse_mounts_below(mountinfo: str, directory: str) -> list[str]:
    """Mount points at or below a directory, the youngest first (they may lie on each other)."""
    points = (_unescaped(line.split(" ", 5)[4]) for line in mountinfo.splitlines() if line)
    inside = [p for p in points if p == directory or p.startswith(directory + "/")]
    return inside[::-1]


def is_mount_point(directory: str) -> bool:
    """Whether another file system is mounted here (binds of the same one do not count)."""
    try:
        return os.lstat(directory).st_dev != os.lstat(os.path.dirname(directory)).st_dev  # noqa: PTH120
    except FileNotFoundError:
        return False


def share(directory: str) -> None:
    """Make mounts below a directory visible both to the node and to containers that ask for it.

    Where the node's file systems are not shared already, the directory becomes a mount of its own,
    as the kubelet's root directory does.

    Raises:
        OSError: it cannot be; EBUSY: it has mounts below it, which one of its own would hide.
    """
    path = os.path.realpath(directory)
    mountinfo = Path("/proc/self/mountinfo").read_bytes().decode("utf-8", "surrogateescape")
    if shared_at(mountinfo, path):
        return
    below = parse_mounts_below(mountinfo, path)
    if path not in below:
        if below:
            raise OSError(errno.EBUSY, "it has mounts below it that are not shared", path)
        mount(path, path, flags=MS_BIND)
    mount("none", path, flags=MS_SHARED | MS_REC)


def shared_at(mountinfo: str, path: str) -> bool:
    """Whether the mount that holds a path is shared."""
    longest, shared = "", False
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        point = _unescaped(fields[4])
        inside = point in ("/", path) or path.startswith(point + "/")
        if inside and len(point) >= len(longest):
            optional = fields[6 : fields.index("-", 6)]
            longest, shared = point, any(tag.startswith("shared:") for tag in optional)
    return shared


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _raise(target: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), target)

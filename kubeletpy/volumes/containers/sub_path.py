"""Mounts a part of a volume (subPath) where the runtime can use it.

The runtime is never given a path inside a volume, which a container could replace by a symlink to
the host: it gets a mount of exactly what was checked. Blocking, for threads. Source:
docs/reference/behaviour.md, i5; CVE-2017-1002101.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.volumes.files.safe_path import open_beneath
from kubeletpy.volumes.files.syscalls import MS_BIND, detach, mount

_DIRECTORY_MODE = 0o750


def bind_sub_path(volume: str, parts: Sequence[str], target: str, *, read_only: bool) -> None:
    """Mount a path of a volume at ``target``; an existing mount of the same path stays.

    A mount at ``target`` that shows another file, or that does not answer any more (a stale NFS
    handle, a FUSE server that has died), is replaced.

    Args:
        volume: host path of the volume.
        parts: the path inside.
        target: a path below the pod's ``volume-subpaths``, used by the agent alone.
        read_only: nothing is made in the volume.

    Raises:
        UnsafePath: the path leads out of the volume.
        OSError: it is missing, or cannot be mounted.
    """
    source = open_beneath(volume, parts, create=not read_only)
    try:
        found = os.fstat(source)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), "/".join(parts))
        if _same_file(target, found):
            return
        _make_target(target, is_directory=stat.S_ISDIR(found.st_mode))
        mount(f"/proc/self/fd/{source}", target, flags=MS_BIND)
    finally:
        os.close(source)


def path_inside(volume: str, parts: Sequence[str], *, read_only: bool) -> str:
    """A path of a volume that leads nowhere else now, where the kernel refuses the mount.

    Whoever writes to the volume can replace it later. Its links are not resolved: files of a
    configMap move at each update. Arguments and errors are those of :func:`bind_sub_path`.
    """
    os.close(open_beneath(volume, parts, create=not read_only))
    return str(Path(volume, *parts))


def _same_file(target: str, wanted: os.stat_result) -> bool:
    """Whether a target shows this file. A broken mount fails with ESTALE, ENOTCONN, EIO and others:
    the caller replaces whatever cannot be examined."""
    try:
        there = os.lstat(target)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino)


def _make_target(target: str, *, is_directory: bool) -> None:
    """An empty directory or file without a mount on it."""
    path = Path(target)
    path.parent.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    _clear(path)
    if is_directory:
        path.mkdir(_DIRECTORY_MODE)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o640))


def _clear(path: Path) -> None:
    """Remove the leftovers of an earlier start.

    Mounts are detached, not flushed: a FUSE server that hangs must not block a container's start.
    """
    while True:
        try:
            detach(str(path))
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOENT):
                raise
            break
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)

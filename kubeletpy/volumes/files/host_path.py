"""hostPath volumes: checks or makes what their type requests. Ownership is never changed.

A pod that has the parent directory may change the path meanwhile: the mode is set on the file just
made, by its descriptor, never by its name.

Blocking, for threads. Source: docs/reference/behaviour.md, i3.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.host.files import make_directory

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}

_DIRECTORY_MODE = 0o755
_FILE_MODE = 0o644
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class HostPathError(Exception):
    """The path does not match the volume's type."""


def prepare(path: str, kind: str) -> None:
    """Make the path if its type requires that, and check it.

    Raises:
        HostPathError: the path is of another type, or missing.
        OSError: it cannot be made or examined.
    """
    if kind == "":
        return
    if kind not in _CHECKS:
        raise HostPathError(f"hostPath type check failed: unknown type {kind!r}")
    fits, what = _CHECKS[kind]
    target = Path(path)
    if kind == "DirectoryOrCreate" and not target.exists():
        _make_directories(target)
    if kind == "FileOrCreate" and not target.exists():
        _make_file(target)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = 0
    if not fits(mode):
        raise HostPathError(f"hostPath type check failed: {path} is not {what}")


def _make_directories(path: Path) -> None:
    there = next(above for above in path.parents if above.exists())
    here = os.open(there, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.relative_to(there).parts:
            below = make_directory(part, _DIRECTORY_MODE, here)
            os.close(here)
            here = below
    finally:
        os.close(here)


def _make_file(path: Path) -> None:
    if not path.parent.is_dir():
        raise HostPathError(f"hostPath type check failed: {path.parent} does not exist")
    try:
        made = os.open(path, _NEW, _FILE_MODE)
    except FileExistsError:
        return
    try:
        os.fchmod(made, _FILE_MODE)  # regardless of the umask
    finally:
        os.close(made)

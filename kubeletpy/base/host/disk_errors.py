"""Completes the errors of files: each names its path; one of a disk, how full it is.

The kernel names no file for a failed write, and ``os`` only a part of a path below a descriptor.
Blocks on the file system in question, but only after an error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeletpy.base.host.errors import OF_DISKS, DiskError, FaultKind, MachineFault, machine_fault
from kubeletpy.base.structs import replace

_DESCRIPTORS = "/proc/self/fd/"
FULL_PERCENT = 100


@contextmanager
def complete_errors(path: str | Path, *, replace_path: bool = False) -> Iterator[None]:
    """Work on a file or directory, or on some that the errors name ("").

    ``replace_path``: errors name ``path`` even if they have another, such as a temporary file's,
    whose name differs at each try.

    Raises:
        DiskError: the disk is full, read-only or broken, or a quota is used up.
        OSError: another error, with its path.
    """
    try:
        yield
    except DiskError:
        raise
    except OSError as error:
        name = _full_name(None if replace_path else error.filename, str(path))
        if not name:
            raise
        if error.errno in OF_DISKS:
            text = os.strerror(error.errno) if error.strerror is None else error.strerror
            raise DiskError(error.errno, text, _measured(error, name)) from error
        if error.errno is not None and error.filename != name:
            error.filename = name
        raise


def _full_name(name: object, path: str) -> str:
    """The path of an error; ``name`` is what the error has, perhaps relative to a descriptor."""
    if path.startswith(_DESCRIPTORS):
        path = os.path.realpath(path)
    if not isinstance(name, str) or name.startswith(_DESCRIPTORS):
        return path
    if name.startswith("/"):
        return name
    before, found, _ = f"{path}/".partition(f"/{name}/")
    return f"{before}/{name}" if found else f"{path}/{name}"


def _measured(error: OSError, path: str) -> MachineFault:
    fault = machine_fault(error)
    assert fault is not None, "one of OF_DISKS"
    try:
        place = Path(path).resolve()
        while not place.exists():
            place = place.parent
        found = os.statvfs(place)
        while not place.is_mount():
            place = place.parent
    except OSError:
        return replace(fault, path=path)
    no_inode = found.f_files and not found.f_ffree and fault.kind is FaultKind.SPACE
    return MachineFault(
        FaultKind.INODES if no_inode and error.errno == errno.ENOSPC else fault.kind,
        path,
        str(place),
        found.f_blocks * found.f_frsize,
        _percent(found.f_blocks - found.f_bfree, found.f_blocks),
        found.f_files,
        _percent(found.f_files - found.f_ffree, found.f_files),
    )


def _percent(used: int, most: int) -> int:
    """Rounded, so that messages stay the same while little changes; 100 only for all of it."""
    return FULL_PERCENT if used >= most else min(round(used * 100 / most), FULL_PERCENT - 1)

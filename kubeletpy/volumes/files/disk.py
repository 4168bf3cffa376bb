"""Directories, links and bound devices of volumes on disks and of CSI drivers, and their mounts.

Nothing is removed below or through a mount. Only empty directories, our own links and our own files
are removed: anything a driver left in a directory stays and is reported. Mounts are read from the
kernel's table, because a path on a dead network disk may never answer. Blocking, for threads.
Source: docs/reference/behaviour-storage.md, sf, sh, si.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from kubeletpy.base.host import machine, mount_table
from kubeletpy.volumes.files.syscalls import MS_BIND, mount, table, unmount

DIRECTORY_MODE = 0o750


class StillMounted(OSError):
    """Something is mounted where nothing should be."""


def is_mounted(path: str) -> bool:
    """Whether something is mounted at a path whose last component is not a symlink."""
    return bool(_mounts_at(path))


def mounted_from(path: str) -> str:
    """The source of the mount at a path, as its file system names it; empty: nothing is mounted."""
    here = _mounts_at(path)
    return here[-1].source if here else ""


def has_labels(path: str) -> bool:
    """Whether the mount at a path supports SELinux labels."""
    here = _mounts_at(path)
    return bool(here) and here[-1].labels


def _mounts_at(path: str) -> list[mount_table.MountPoint]:
    at = as_in_table(path)
    return [each for each in table() if each.path == at]


def other_references(path: str, suffix: str) -> list[str]:
    """Other mounts of what is mounted at a path, except those whose path ends alike: the root
    directory may itself be mounted at a second place.
    """
    return [r for r in mount_table.references(table(), as_in_table(path)) if not r.endswith(suffix)]


def make_directory(path: str) -> None:
    """Make a directory and its parents. Raises OSError."""
    Path(path).mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def remove_target(target: str) -> None:
    """Remove a volume's mount point, if it is empty. Raises OSError."""
    try:
        found = os.lstat(target)
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISDIR(found.st_mode):
        Path(target).rmdir()
    elif found.st_size == 0 or not stat.S_ISREG(found.st_mode):
        Path(target).unlink()
    else:
        raise OSError(errno.ENOTEMPTY, "it is a file with content", target)


def remove_directory(path: str) -> None:
    """Remove an empty directory, if it exists. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).rmdir()


def force_unmount(target: str) -> None:
    """Unmount everything mounted at a path, without the driver. Raises OSError."""
    while is_mounted(target):
        unmount(as_in_table(target))


def device_of(publish: str) -> str:
    """The device that a driver has published, with links resolved.

    Raises:
        OSError: there is none.
    """
    path = os.path.realpath(publish)
    if not stat.S_ISBLK(Path(path).stat().st_mode):
        raise OSError(errno.ENOTBLK, "it is not a block device", publish)
    return path


def announce(link: str, target: str) -> bool:
    """Link a pod to where its device is about to be; returns whether it had no link.

    Until the driver has made the target, nothing else shows that the pod may have the device. If
    the agent is killed meanwhile, the next one finds it by the link. Raises OSError.
    """
    made = Path(link)
    make_directory(str(made.parent))
    if made.is_symlink():
        return False
    made.symlink_to(target)
    return True


def withdraw(link: str) -> None:
    """Remove a pod's link to a device. Raises OSError."""
    made = Path(link)
    made.with_name(f".{made.name}.new").unlink(missing_ok=True)
    if made.is_symlink():
        made.unlink()
    with contextlib.suppress(OSError):  # other pods have links in it
        made.parent.rmdir()


def map_device(device: str, bound: str, link: str) -> None:
    """Bind a device for a pod, hold it with a loop device, and link it for containers.

    Args:
        bound: the file that the device is bound to.
        link: the pod's link to the device.

    Raises:
        OSError: it can't be.
    """
    make_directory(str(Path(bound).parent))
    if not is_mounted(bound):
        Path(bound).touch(0o640)
        mount(device, bound, flags=MS_BIND)
    make_directory(str(Path(link).parent))
    made = Path(link)
    if not (made.is_symlink() and str(made.readlink()) == device):
        fresh = made.with_name(f".{made.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(device)
        fresh.replace(made)
    machine.attach(bound)


def unmap_device(bound: str, link: str) -> None:
    """Undo ``map_device``. Raises OSError."""
    withdraw(link)
    release_device(bound)


def release_device(bound: str) -> None:
    """Undo ``map_device`` except for the link. Raises OSError."""
    loop = machine.loop_device_of(bound)
    if loop is not None:
        machine.detach(loop)
    force_unmount(bound)
    with contextlib.suppress(FileNotFoundError):
        remove_target(bound)
    with contextlib.suppress(OSError):  # other pods have binds in it
        Path(bound).parent.rmdir()


def bound_devices(directory: str) -> list[str]:
    """The binds that remain in a directory of ``map_device``."""
    below = f"{os.path.realpath(directory)}/"
    return [each.path for each in table() if each.path.startswith(below)]


def as_in_table(path: str) -> str:
    """A path as in the kernel's table; the file system mounted there is not accessed."""
    whole = Path(path)
    return f"{os.path.realpath(whole.parent)}/{whole.name}"


def names_in(directory: str) -> list[str]:
    """The entries of a directory, sorted; none when it does not exist. Raises OSError."""
    try:
        return sorted(entry.name for entry in Path(directory).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []

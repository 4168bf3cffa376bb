"""Directories, links and bound devices of CSI volumes: made before a call, removed after it.

Nothing is removed below or through a mount, and nothing but empty directories, our own links and
files: what a driver has left in a directory stays, and is reported. What is mounted is read off the
kernel's table, for a path on a dead network disk may never answer. Blocking, for threads. Source:
docs/reference/behaviour-storage.md, sf, sh, si.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from kubeletpy.host import loop_devices, mount_table
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.syscalls import MS_BIND, mount, unmount

DIRECTORY_MODE = 0o750


class StillMounted(OSError):
    """Something is mounted where nothing should be."""


def table() -> list[mount_table.MountPoint]:
    """What is mounted."""
    return mount_table.parse(Path("/proc/self/mountinfo").read_bytes())


def is_mounted(path: str) -> bool:
    """Whether something is mounted at a path, whose last part is no link."""
    return any(each.path == _real(path) for each in table())


def has_labels(path: str) -> bool:
    """Whether what is mounted at a path can have SELinux labels."""
    here = [each for each in table() if each.path == _real(path)]
    return bool(here) and here[-1].labels


def other_references(path: str, suffix: str) -> list[str]:
    """Mounts that show what is mounted at a path, but for those whose path ends alike: the root
    directory may itself be mounted at a second place."""
    return [r for r in mount_table.references(table(), _real(path)) if not r.endswith(suffix)]


def make_directory(path: str) -> None:
    """Make a directory and those above it. Raises OSError."""
    Path(path).mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)


def remove_volume(target: str, data: str) -> None:
    """Remove a target with the file beside it and the directory of both, once it is unmounted.

    Raises:
        StillMounted: it is not.
        OSError: something else is in the way.
    """
    if is_mounted(target):
        raise StillMounted(errno.EBUSY, "it is still mounted", target)
    _remove_target(target)
    files.remove(data)
    remove_directory(str(Path(data).parent))


def _remove_target(target: str) -> None:
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
    """Remove an empty directory, if it is there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).rmdir()


def force_unmount(target: str) -> None:
    """Unmount all that is mounted at a path, without the driver. Raises OSError."""
    while is_mounted(target):
        unmount(_real(target))


def device_of(publish: str) -> str:
    """The device that a driver has published, through links.

    Raises:
        OSError: there is none.
    """
    path = os.path.realpath(publish)
    if not stat.S_ISBLK(Path(path).stat().st_mode):
        raise OSError(errno.ENOTBLK, "it is no block device", publish)
    return path


def map_device(device: str, bound: str, link: str, target: str) -> None:
    """Bind a device for a pod, hold it by a loop device, and link it where containers look.

    Args:
        bound: the file that the device is bound to.
        link: the pod's link, to ``target``.

    Raises:
        OSError: it can't be.
    """
    make_directory(str(Path(bound).parent))
    if not is_mounted(bound):
        Path(bound).touch(0o640)
        mount(device, bound, flags=MS_BIND)
    make_directory(str(Path(link).parent))
    made = Path(link)
    if not (made.is_symlink() and str(made.readlink()) == target):
        fresh = made.with_name(f".{made.name}.new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(target)
        fresh.replace(made)
    loop_devices.attach(bound)


def unmap_device(bound: str, link: str) -> None:
    """Undo ``map_device``. Raises OSError."""
    loop = loop_devices.of(bound)
    if loop is not None:
        loop_devices.detach(loop)
    made = Path(link)
    made.with_name(f".{made.name}.new").unlink(missing_ok=True)
    if made.is_symlink():
        made.unlink()
    force_unmount(bound)
    with contextlib.suppress(FileNotFoundError):
        _remove_target(bound)
    for each in (made.parent, Path(bound).parent):
        with contextlib.suppress(OSError):  # others have theirs in it
            each.rmdir()


def bound_devices(directory: str) -> list[str]:
    """What is still bound in a directory of ``map_device``."""
    below = f"{os.path.realpath(directory)}/"
    return [each.path for each in table() if each.path.startswith(below)]


def _real(path: str) -> str:
    """A path as the kernel's table has it; what is mounted there is not asked."""
    whole = Path(path)
    return f"{os.path.realpath(whole.parent)}/{whole.name}"

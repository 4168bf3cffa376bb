"""Mounts of volumes, their directories, links and bound devices, and the processes that hold them.

Nothing is removed below or through a mount. Only empty directories, our own links and our own files
are removed: anything a driver left in a directory stays and is reported. Mounts are read from the
kernel's table, because a path on a dead network disk may never answer. Nothing follows a link when
it unmounts, and mount data is never put into an error. Blocking, for threads. Source:
docs/reference/behaviour-storage.md, sf, sh, si.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import itertools
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kubeletpy.base.host import machine, mount_table
from kubeletpy.base.host.errors import NoThread
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.files.paths import mentions_busy

log = logging.getLogger(__name__)

MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SHARED = 1 << 20
DIRECTORY_MODE = 0o750
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


class MountRights:
    """Whether volumes need their mounts, or a directory may replace a mount that is refused.

    A node needs them: without tmpfs, secrets would be on its disk. The agent of a plain user is a
    guest of another program, and does without them. A user and mount namespace does not help it:
    unshare(2) refuses one to a process with threads, and would change the rights and the view of
    the program itself. A process beside it could mount. But the runtime, which is an object of the
    program, and the processes that it starts would read volumes from outside of that namespace.
    Containers also outlive the agent, and the namespace would end with it. A program that runs in
    such a namespace anyway (``unshare --map-root-user --mount``) may mount and gets mounts.
    """

    def __init__(self, *, required: bool = True, allowed: bool = True) -> None:
        """Decide about the mounts of an agent's volumes.

        Args:
            required: a refused mount is an error; otherwise a directory replaces it.
            allowed: False: directories replace all of these mounts, also those of root.
        """
        self.required, self.allowed = required, allowed
        self._reported = False

    def does_without(self, mounts: Callable[[], object]) -> bool:
        """Mount by the function, or return True if a directory is to replace the mount.

        The first mount that the kernel refuses is logged. Raises the errors of the function.
        """
        if not self.allowed:
            return True
        try:
            mounts()
        except OSError as error:
            if self.required or error.errno not in (errno.EPERM, errno.EACCES):
                raise
            self._report(error)
            return True
        return False

    def _report(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            log.warning(
                "the kernel refuses mounts to this user. Secrets, tokens and volumes in memory are "
                "directories with mode 0700 on the disk, without a size limit. A subPath is a path "
                "that containers can replace. Start the program with `unshare --map-root-user "
                "--mount` if that matters",
                extra={"user": os.geteuid(), "why": str(error)},
            )


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


# The processes that keep a mount from being unmounted, found by their links in /proc.
#
# Reading those links never waits for the mounted file system, and nothing is opened through them.
# Processes are untrusted: their number and the CPU time of a scan are bounded, and only the process
# ID and the command's name are reported.

MAX_PROCESSES = 20_000
MAX_FILES = 1024
"""Open files that are checked for each process."""
MAX_S = 0.5
"""CPU seconds of one scan, so that a busy machine does not shorten it."""
REPORTED = 3
_LONGEST = 16
"""Bytes of a command's name, as the kernel has it."""


class HoldingProcess(Struct, frozen=True):
    """A process; ``apart``: it is in another mount namespace, where the path may be another one."""

    pid: int
    command: str
    apart: bool = False


def holders(
    mount_point: str, proc: str = "/proc", *, now: Callable[[], float] = time.thread_time
) -> list[HoldingProcess]:
    """Processes whose directory, root, program or an open file is at or below a mount point.

    Those of this mount namespace come first; at most REPORTED. The mount point is canonical.
    """
    ends = now() + MAX_S
    ours = _link(f"{proc}/self/ns/mnt")
    found: list[HoldingProcess] = []
    for pid in itertools.islice(_pids(proc), MAX_PROCESSES):
        if now() > ends or sum(not each.apart for each in found) >= REPORTED:
            break
        if any(_is_below(link, mount_point) for link in _links(f"{proc}/{pid}")):
            apart = _link(f"{proc}/{pid}/ns/mnt") != ours
            found.append(HoldingProcess(pid, _command(f"{proc}/{pid}"), apart))
    return sorted(found, key=lambda each: each.apart)[:REPORTED]


def holders_text(found: list[HoldingProcess]) -> str:
    """The processes as text for the end of a sentence; empty: none was found."""
    if not found:
        return ""
    names = [
        f"process {each.pid} ({each.command}{', in another mount namespace' if each.apart else ''})"
        for each in found
    ]
    return f"; it is in use by {', '.join(names)}"


def _pids(proc: str) -> Iterator[int]:
    try:
        with os.scandir(proc) as entries:
            for entry in entries:
                if entry.name.isascii() and entry.name.isdecimal():
                    yield int(entry.name)
    except OSError:
        return


def _links(process: str) -> Iterator[str]:
    for name in ("cwd", "root", "exe"):
        yield _link(f"{process}/{name}")
    try:
        with os.scandir(f"{process}/fd") as entries:
            for entry in itertools.islice(entries, MAX_FILES):
                yield _link(entry.path)
    except OSError:  # it has ended, or may not be read
        return


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _is_below(link: str, mount_point: str) -> bool:
    return link == mount_point or link.startswith(f"{mount_point}/")


def _command(process: str) -> str:
    try:
        with Path(f"{process}/comm").open("rb") as file:
            name = file.read(_LONGEST).split(b"\n")[0].decode(errors="replace")
    except OSError:
        return "?"
    return "".join(letter if letter.isprintable() else "?" for letter in name) or "?"


_SCANS = PatientThreads(1)
"""One scan of /proc at a time."""


async def held_by(message: str, path: str) -> str:
    """The processes that hold a mount, as the end of a sentence; empty: not busy, or none found.

    The agent, plugins and drivers word their errors differently, so a message only has to mention
    that the volume is busy. If it mentions that for another reason, it costs one scan of /proc.

    Args:
        message: the error of an unmount.
        path: the mount point.
    """
    if not (path and mentions_busy(message)):
        return ""
    try:
        return await _SCANS.run(_scan_holders, path)
    except NoThread:
        return ""


def _scan_holders(path: str) -> str:
    return holders_text(holders(as_in_table(path)))

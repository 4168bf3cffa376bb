"""Opens, checks and changes paths of volumes safely while a container may be changing them.

Every component is opened relative to the directory before it, never following a symlink: paths
inside volumes, hostPath volumes and the files that get the pod's fsGroup. Blocking, for threads.
Source: docs/reference/behaviour.md, i3, i5, i6.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

from kubeletpy.base.host.errors import Cause, CausedError, CauseKind
from kubeletpy.base.host.files import Tree, make_directory
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.files.paths import UnsafePath

MAX_LINKS = 40
"""The kernel's limit: more symlinks in one path count as a loop."""
MAX_DEPTH = 512
_PART = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beneath(volume: str, parts: Sequence[str], *, create: bool = False) -> int:
    """An O_PATH descriptor of a path inside a volume; the caller closes it.

    Symlinks are read and resolved here, so they cannot lead out: ".." goes back along directories
    that were opened, at most to the volume itself.

    Args:
        volume: host path of the volume; its own links are the node's and are followed.
        parts: the path, without "", "." and "..".
        create: make missing directories, with all mode bits of the volume: with setgid the
            fsGroup owns what is made in them, with the sticky bit only owners can remove files.

    Raises:
        UnsafePath: the path leads out of the volume, or has too many links.
        FileNotFoundError: nothing is there, and ``create`` is false.
        OSError: it cannot be opened.
    """
    with ExitStack() as stack:
        walk = _PathWalk(volume, stack)
        todo = list(reversed(parts))
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                walk.back()
                continue
            target = walk.enter(part, create=create)
            if target is None:
                continue
            links += 1
            if links > MAX_LINKS:
                raise UnsafePath("the path has too many links")
            if target.startswith("/"):
                target = walk.restart(target)
            todo += [p for p in reversed(target.split("/")) if p not in ("", ".")]
        return os.dup(walk.current_fd)


class _PathWalk:
    """The position of a walk, and how it got there."""

    def __init__(self, volume: str, stack: ExitStack) -> None:
        self._volume = volume.rstrip("/") or "/"
        self._stack = stack
        root = os.open(volume, os.O_PATH | os.O_CLOEXEC)
        stack.callback(os.close, root)
        mode = os.fstat(root).st_mode
        self._mode = stat.S_IMODE(mode)
        self._way = [root]

    @property
    def current_fd(self) -> int:
        return self._way[-1]

    def back(self) -> None:
        if len(self._way) == 1:
            raise UnsafePath("the path leads out of the volume")
        self._way.pop()

    def restart(self, target: str) -> str:
        """Go back to the volume for an absolute link; returns the rest of the link."""
        if target != self._volume and not target.startswith(self._volume.rstrip("/") + "/"):
            raise UnsafePath("the path leads out of the volume")
        del self._way[1:]
        return target[len(self._volume) :]

    def enter(self, part: str, *, create: bool) -> str | None:
        """Step into one component; returns the target when it is a link."""
        if len(self._way) > MAX_DEPTH:
            raise UnsafePath("the path is too deep")
        try:
            found = os.open(part, _PART, dir_fd=self.current_fd)
        except FileNotFoundError:
            if not create:
                raise
            self._make(part)
            found = os.open(part, _PART, dir_fd=self.current_fd)
        self._stack.callback(os.close, found)
        if stat.S_ISLNK(os.fstat(found).st_mode):
            return os.readlink("", dir_fd=found)  # of the link that was opened
        self._way.append(found)
        return None

    def _make(self, part: str) -> None:
        os.close(make_directory(part, self._mode, self.current_fd))


# hostPath volumes (table i3): made and checked as their type requests, never given to an owner.
#
# A pod that has the parent directory may change the path meanwhile: the mode is set on the file
# just made, by its descriptor, never by its name.

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


class HostPathError(CausedError):
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
        raise HostPathError(
            f"hostPath type check failed: {path} is not {what}", Cause(CauseKind.HOST_PATH, path)
        )


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
        raise HostPathError(
            f"hostPath type check failed: {path.parent} does not exist",
            Cause(CauseKind.HOST_PATH, str(path.parent)),
        )
    try:
        made = os.open(path, _NEW, _FILE_MODE)
    except FileExistsError:
        return
    try:
        os.fchmod(made, _FILE_MODE)  # regardless of the umask
    finally:
        os.close(made)


# The pod's fsGroup (table i6): no symlink is followed, and no other file system is entered. Each
# entry is opened without following links, and the open file is changed.

MAX_ENTRIES = 1_000_000
"""The most entries of one volume that are changed."""
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
"""Errors of an entry that has vanished meanwhile, or is on another file system."""
_READ_ONLY, _READ_WRITE = 0o440, 0o660
_DIRECTORY = 0o110 | stat.S_ISGID


def may_give_to_user(user: int) -> bool:
    """Whether this process may give files to a user: root to those of its user namespace."""
    return user == os.geteuid() or (os.geteuid() == 0 and _is_mapped("uid_map", user))


def may_give_to_group(group: int) -> bool:
    """Whether this process may give files to a group: others than root only to groups of theirs."""
    own = group == os.getegid() or group in os.getgroups()
    return own or (os.geteuid() == 0 and _is_mapped("gid_map", group))


def _is_mapped(name: str, number: int) -> bool:
    for line in Path("/proc/self", name).read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= number < first + count:
            return True
    return False


class Progress(Struct):
    """Progress of a walk; read by other threads meanwhile."""

    files: int = 0


def owned_mode(mode: int, *, read_only: bool) -> int:
    """The mode of a file or directory after its group is set."""
    bits = mode | (_READ_ONLY if read_only else _READ_WRITE)
    return bits | _DIRECTORY if stat.S_ISDIR(mode) else bits


def belongs_to(directory: str, group: int, *, read_only: bool) -> bool:
    """Whether :func:`give_to_group` has finished with a directory. Raises OSError."""
    found = os.lstat(directory)
    desired = owned_mode(found.st_mode, read_only=read_only)
    return found.st_gid == group and stat.S_IMODE(found.st_mode) == stat.S_IMODE(desired)


def give_to_group(
    directory: str,
    group: int,
    *,
    read_only: bool,
    max_entries: int = MAX_ENTRIES,
    progress: Progress | None = None,
) -> None:
    """Change group and mode of everything in a directory, then of the directory itself.

    Raises:
        OSError: an entry could not be changed, or there are more than ``max_entries``.
    """
    tree, progress = Tree(directory), progress or Progress()
    left = max_entries - _change_all(tree, group, read_only, max_entries, progress)
    try:
        while tree.below or not tree.at_top:
            if left < 0:
                raise OSError(f"{directory} holds more than {max_entries} entries")
            if not tree.below:
                tree.up()
                continue
            try:
                tree.down(tree.below.pop())
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                continue
            left -= _change_all(tree, group, read_only, max_entries, progress)
        _change(".", tree.here, group, read_only)
    finally:
        tree.close()


def _change_all(
    tree: Tree, group: int, read_only: bool, max_entries: int, progress: Progress
) -> int:
    """Change the open directory (except the top) and the files in it; returns its entry count."""
    if not tree.at_top:
        _change(".", tree.here, group, read_only)
    count = 0
    with os.scandir(tree.here) as entries:
        for entry in islice(entries, max_entries + 1):
            count += 1
            progress.files += 1
            if entry.is_dir(follow_symlinks=False):
                tree.below.append(entry.name)
            else:
                with suppress(FileNotFoundError):  # a running container has removed it
                    _change(entry.name, tree.here, group, read_only)
    return count


def _change(name: str, directory_fd: int, group: int, read_only: bool) -> None:
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory_fd)
    try:
        found = os.fstat(entry)
        if stat.S_ISLNK(found.st_mode):
            os.chown(name, -1, group, dir_fd=directory_fd, follow_symlinks=False)
            return
        itself = f"/proc/self/fd/{entry}"
        mode = owned_mode(found.st_mode, read_only=read_only)
        if found.st_gid != group:
            os.chown(itself, -1, group)
        if stat.S_IMODE(mode) != stat.S_IMODE(found.st_mode) or found.st_gid != group:
            os.chmod(itself, stat.S_IMODE(mode))  # noqa: PTH101 - after chown, which drops setgid
    finally:
        os.close(entry)

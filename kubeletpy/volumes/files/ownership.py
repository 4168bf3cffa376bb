"""Applies the pod's fsGroup to the files of a volume.

Follows no symlink and enters no other file system: each entry is opened without following links,
and the open file is changed. Blocking, for threads. Source: docs/reference/behaviour.md, i6.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path

from kubeletpy.base.host.files import Tree
from kubeletpy.base.structs import Struct

MAX_ENTRIES = 1_000_000
"""The most entries of one volume that are changed."""
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
"""Vanished meanwhile, or not ours."""
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
    wanted = owned_mode(found.st_mode, read_only=read_only)
    return found.st_gid == group and stat.S_IMODE(found.st_mode) == stat.S_IMODE(wanted)


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

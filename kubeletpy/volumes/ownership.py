"""Gives the files of a volume to the pod's fsGroup.

Follows no link: each entry is opened without following, and what was opened is changed. Blocking,
for threads. Source: docs/reference, volumes: ownership (fsGroup).
"""

from __future__ import annotations

import os
import stat

MAX_ENTRIES = 1_000_000
"""Entries of one volume that are changed."""
_READ_ONLY, _READ_WRITE = 0o440, 0o660
_DIRECTORY = 0o110 | stat.S_ISGID


def owned_mode(mode: int, *, read_only: bool) -> int:
    """The mode of a file or directory after its group was given it."""
    bits = mode | (_READ_ONLY if read_only else _READ_WRITE)
    return bits | _DIRECTORY if stat.S_ISDIR(mode) else bits


def give_to_group(directory: str, group: int, *, read_only: bool) -> None:
    """Change group and mode of a directory and all that is in it.

    Raises:
        OSError: an entry could not be changed, or there are more than MAX_ENTRIES.
    """
    left = MAX_ENTRIES
    for _, directories, files, directory_fd in os.fwalk(directory, follow_symlinks=False):
        _change(".", directory_fd, group, read_only)
        for name in files:
            _change(name, directory_fd, group, read_only)
        for name in directories:
            if stat.S_ISLNK(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
                _change(name, directory_fd, group, read_only)
        left -= len(directories) + len(files)
        if left < 0:
            raise OSError(f"{directory} holds more than {MAX_ENTRIES} entries")


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

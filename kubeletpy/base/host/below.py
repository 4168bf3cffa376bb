"""Opens files below one of the agent's directories, safely although others may write there.

A pod that mounts such a directory from the host can replace a directory with a symlink. So each
part of a path is opened relative to the directory opened before it, and no symlink is followed;
only the root is opened by its name. Blocking: call it on a thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import PurePosixPath

from kubeletpy.base.host.disk_errors import complete_errors

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotBelow(OSError):
    """The path leads out of the directory, or to something other than a regular file."""


def parts_below(root: str, path: str) -> tuple[str, ...]:
    """The parts of a path below ``root``, at least one. Raises NotBelow."""
    try:
        parts = PurePosixPath(path).relative_to(root).parts
    except ValueError:
        raise NotBelow(f"{path} is not below {root}") from None
    if not parts or ".." in parts:
        raise NotBelow(f"{path} is not below {root}")
    return parts


def open_folder(root: str, parts: Sequence[str], make_mode: int | None = None) -> int:
    """Open a directory below ``root``; the caller closes it.

    ``make_mode``: missing directories are created with that mode less the umask. Raises OSError.
    """
    with complete_errors("/".join((root, *parts))):
        return _open_folder(root, parts, make_mode)


def _open_folder(root: str, parts: Sequence[str], make_mode: int | None) -> int:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if make_mode is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, make_mode, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder


def open_folder_of(root: str, path: str) -> tuple[int, str]:
    """Open the folder of a file below ``root``: its descriptor (close it) and the file's name.

    Raises:
        OSError: NotBelow among them.
    """
    *parts, name = parts_below(root, path)
    return open_folder(root, parts), name


def open_file(root: str, path: str) -> int:
    """Open a regular file below ``root`` for reading; close it. Raises OSError, NotBelow."""
    folder, name = open_folder_of(root, path)
    try:
        with complete_errors(path):
            file = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotBelow(f"{path} is no regular file")


def make_directory(name: str, mode: int, folder: int) -> int:
    """Create a directory in an open one, whatever the umask, or take the existing one; close it.

    Others may replace it before it is opened: the mode is only set on a directory that is still
    empty, and never on one that existed before.

    Raises:
        OSError: something else is there, such as a symlink.
    """
    try:
        os.mkdir(name, mode, dir_fd=folder)
    except FileExistsError:
        return os.open(name, _FOLDER, dir_fd=folder)
    made = os.open(name, _FOLDER, dir_fd=folder)
    try:
        if stat.S_IMODE(os.fstat(made).st_mode) != mode:
            with os.scandir(made) as entries:
                if next(entries, None) is None:
                    os.fchmod(made, mode)
    except BaseException:
        os.close(made)
        raise
    return made

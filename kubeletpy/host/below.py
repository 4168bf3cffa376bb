"""Opens files below a directory of the agent's, although others may write there too.

Whoever mounts such a directory from the host can put a link where a directory was. So each part of
a path is opened in the directory that was opened before it, and no link is followed; only the root
is taken as it is named. Blocking, for threads.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotBelow(OSError):
    """The path leads out of the directory, or not to a regular file."""


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
    """A directory below ``root``, opened; close it.

    ``make_mode``: those that are missing are made, with that mode less the umask. Raises OSError.
    """
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
    """The folder of a file below ``root``, opened, and the file's name in it; close the folder.

    Raises:
        OSError: NotBelow among them.
    """
    *parts, name = parts_below(root, path)
    return open_folder(root, parts), name


def open_file(root: str, path: str) -> int:
    """A regular file below ``root``, opened for reading; close it. Raises OSError, NotBelow."""
    folder, name = open_folder_of(root, path)
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotBelow(f"{path} is no regular file")


def make_directory(name: str, mode: int, folder: int) -> int:
    """Make a directory in an open one, whatever the umask, or take what is there; opened: close it.

    Others may put another one in its place before it is opened: the mode is only set of one that
    is empty still, and never of what was there before.

    Raises:
        OSError: there is something else, a link for one.
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

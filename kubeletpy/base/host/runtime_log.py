"""Opens a container's log below podLogsDir, even if the runtime keeps it in a file of its own.

A runtime on top of Docker puts a symlink in place of the log, which points to
``…/ID/ID-json.log`` in Docker's own directory. Only that symlink is followed, and only if root owns
it. Its target must be named after this very container, twice, and be a regular file owned by root,
in directories that root owns and nobody else can write to. So being able to create symlinks below
podLogsDir gives access to no other file of the node and no other container's log. Blocking.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import PurePosixPath

from kubeletpy.base.host.below import NotBelow, open_file, open_folder_of

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_container_log(root: str, path: str, container_id: str) -> tuple[int, str]:
    """Open a container's log for reading (close it); also where it is, empty if at its path.

    A symlink is followed only to the runtime's own file for that container; without
    ``container_id`` none is. Raises OSError, NotBelow.
    """
    try:
        return open_file(root, path), ""
    except OSError as error:
        if error.errno != errno.ELOOP or not container_id:
            raise
    return open_linked_log(root, path, container_id)


def open_linked_log(root: str, path: str, container_id: str) -> tuple[int, str]:
    """Open the runtime's own log of a container for reading (close it); also where it is.

    ``path``, below ``root``, is the link. Raises OSError, NotBelow.
    """
    target = _target(root, path)
    wanted = (container_id, f"{container_id}-json.log")
    if PurePosixPath(target).parts[-2:] != wanted or not target.startswith("/"):
        raise NotBelow(f"{path} is a link to {target}, which is not this container's log")
    return _open_roots_own(target), target


def _target(root: str, path: str) -> str:
    folder, name = open_folder_of(root, path)
    try:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid != 0:
            raise NotBelow(f"{path} is a link that is not root's")
        return os.readlink(name, dir_fd=folder)
    finally:
        os.close(folder)


def _open_roots_own(path: str) -> int:
    """Open a regular file owned by root through directories owned by root, without symlinks."""
    *parts, name = PurePosixPath(path).parts[1:]
    if ".." in parts:
        raise NotBelow(f"{path} leads astray")
    folder = os.open("/", _FOLDER)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
            _must_be_roots(os.fstat(folder), path)
        file = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        found = os.fstat(file)
        _must_be_roots(found, path)
        if not stat.S_ISREG(found.st_mode):
            raise NotBelow(f"{path} is no regular file")
    except BaseException:
        os.close(file)
        raise
    return file


def _must_be_roots(found: os.stat_result, path: str) -> None:
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_uid != 0 or (found.st_mode & 0o022 and not sticky):
        raise NotBelow(f"{path} is not only root's")

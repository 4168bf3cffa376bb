"""The agent's files for a container: its log directory, termination message file and links.

Paths are built from names in specs: one that could lead elsewhere is refused. Must never write into
a container's own files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.files import open_folder, open_folder_of
from kubeletpy.runtime_manager.names.container_paths import container_parts, termination_file

logger = logging.getLogger(__name__)

LOG_DIRECTORY_MODE = 0o755
CONTAINER_DIRECTORY_MODE = 0o750
TERMINATION_FILE_MODE = 0o666
"""Containers running as any user write to it."""
TERMINATION_FILE_BYTES = 4
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_log_directory(path: str) -> None:
    """Make a log directory and its parents. Raises OSError."""
    with complete_errors(path):
        Path(path).mkdir(LOG_DIRECTORY_MODE, parents=True, exist_ok=True)


def log_sizes(log_directory: str) -> dict[str, int]:
    """The files in a log directory with their sizes in bytes; none if they can't be read.

    A link has the size of its text: a runtime that keeps its logs elsewhere links them when it
    starts the container.
    """
    try:
        with os.scandir(log_directory) as entries:
            return {
                entry.name: entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if not entry.is_dir(follow_symlinks=False)
            }
    except FileNotFoundError:
        return {}
    except OSError as error:
        logger.warning(
            "restart count cannot be read from logs",
            extra={"directory": log_directory, "error": str(error)},
        )
        return {}


def container_directory(root: str, uid: str, container: str) -> Path:
    """Where the agent keeps files of a container: ``{root}/pods/{uid}/containers/{container}``.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
    """
    return Path(root, *container_parts(uid, container))


@contextlib.contextmanager
def made_container_directory(root: str, uid: str, container: str) -> Iterator[Path]:
    """That directory, made if missing, by a path that stays with it whatever replaces its parents.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
        OSError: it cannot be made, or a part of its path is a symlink.
    """
    folder = _made_folder(root, uid, container)
    try:
        yield Path(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


def _made_folder(root: str, uid: str, container: str) -> int:
    parts = container_parts(uid, container)
    with complete_errors(root):
        Path(root).mkdir(CONTAINER_DIRECTORY_MODE, parents=True, exist_ok=True)
    return open_folder(root, parts, CONTAINER_DIRECTORY_MODE)


def create_termination_file(root: str, uid: str, container: str) -> str:
    """Make ``{root}/pods/{uid}/containers/{container}/{8 hex digits}``, writable by all; its path.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
        OSError: it cannot be made.
    """
    folder = _made_folder(root, uid, container)
    try:
        name = secrets.token_hex(TERMINATION_FILE_BYTES)
        with complete_errors(container_directory(root, uid, container) / name):
            descriptor = os.open(name, _NEW, TERMINATION_FILE_MODE, dir_fd=folder)
        try:
            os.fchmod(descriptor, TERMINATION_FILE_MODE)  # regardless of the umask
        finally:
            os.close(descriptor)
    finally:
        os.close(folder)
    return str(container_directory(root, uid, container) / name)


def remove_termination_file(root: str, uid: str, container: str, path: str) -> None:
    """Remove a file that create_termination_file made; anything else is left alone."""
    file = termination_file(root, uid, container, path)
    if not file:
        return
    try:
        folder, name = open_folder_of(root, file)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("file cannot be removed", extra={"path": file, "error": str(error)})
        return
    try:
        _unlink(name, folder, file)
    finally:
        os.close(folder)


def link_log(log_path: str, link_path: str) -> None:
    """Link a container's log where collectors search; without a log there is no link."""
    if not Path(log_path).exists():
        return
    link = Path(link_path)
    try:
        link.parent.mkdir(LOG_DIRECTORY_MODE, parents=True, exist_ok=True)
        link.symlink_to(log_path)
    except FileExistsError:
        return
    except OSError as error:
        logger.warning("log link failed", extra={"link": link_path, "error": str(error)})


def remove_logs(logs_root: str, log_path: str, link: str) -> None:
    """Remove a container's log with its rotated ones, and its link; "" if it can have none.

    Only below ``logs_root``: the path comes from the runtime.
    """
    if link and os.path.islink(link):  # noqa: PTH114 - a string as it is
        _unlink(link, None, link)
    try:
        folder, name = open_folder_of(logs_root, os.path.normpath(log_path))
    except OSError:
        return
    try:
        for file in os.listdir(folder):  # noqa: PTH208 - of a descriptor
            if file == name or file.startswith(f"{name}."):
                _unlink(file, folder, log_path)
    except OSError as error:
        logger.warning("logs cannot be removed", extra={"path": log_path, "error": str(error)})
    finally:
        os.close(folder)


def _unlink(name: str, folder: int | None, path: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("file cannot be removed", extra={"path": path, "error": str(error)})

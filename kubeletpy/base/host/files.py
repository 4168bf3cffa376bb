"""Files: written atomically, opened safely where pods may write too, and trees that pods made.

Everything here blocks: call it on a thread. Private files are readable by root only. No symlink is
followed below a directory in which others may write, except to a container's log made by Docker.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import ssl
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Struct, field

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}", re.DOTALL)


def write_private(path: Path, content: str | bytes) -> None:
    """Replace a file atomically, mode 0600. Raises OSError."""
    write_whole(path, content, mode=0o600)


def write_whole(path: Path, content: str | bytes, *, mode: int, flushed: bool = True) -> None:
    """Replace a file atomically; ``flushed``: a power cut leaves the old or the new content.

    Nothing is left beside it when that fails. Raises OSError.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")  # as _UNFINISHED
    with complete_errors(path, replace_path=True):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with complete_errors(path, replace_path=True):
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if flushed:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def flush_directory(directory: Path) -> None:
    """Have a power cut not undo what was renamed or removed in a directory. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with complete_errors(directory):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_unfinished(directory: Path) -> None:
    """Remove what writers left that were killed: only before anybody writes there. Raises OSError;
    a directory that does not exist has nothing."""
    try:
        with os.scandir(directory) as entries:
            left = [entry.path for entry in entries if _UNFINISHED.fullmatch(entry.name)]
    except FileNotFoundError:
        return
    for path in left:
        with contextlib.suppress(IsADirectoryError, PermissionError):  # not ours
            Path(path).unlink()


def read_or_make(path: Path, size: int = 32) -> bytes:
    """A file's random bytes, made on first use. Raises OSError."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        found = b""
    if len(found) >= size:
        return found
    made = secrets.token_bytes(size)
    write_private(path, made)
    return made


# Stamps show that a file has changed, without opening it.

Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and inode."""


def stamp(path: Path) -> Stamp | None:
    """A file's stamp, following symlinks; None if it can't be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


# Files below one of the agent's directories. A pod that mounts such a directory from the host can
# replace a directory with a symlink. So each part of a path is opened relative to the directory
# opened before it, and only the root is opened by its name.

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


# Container logs below podLogsDir. A runtime on top of Docker puts a symlink in place of the log, to
# ``…/ID/ID-json.log`` in Docker's own directory. Only that symlink is followed, and only if root
# owns it. Its target must be named after this very container, twice, and be a regular file owned
# by root, in directories that root owns and nobody else can write to. So being able to create
# symlinks below podLogsDir gives access to no other file of the node.

_PATH_ONLY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    desired = (container_id, f"{container_id}-json.log")
    if PurePosixPath(target).parts[-2:] != desired or not target.startswith("/"):
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
    folder = os.open("/", _PATH_ONLY)
    try:
        for part in parts:
            inner = os.open(part, _PATH_ONLY, dir_fd=folder)
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


# Trees made by a container, which may be arbitrarily deep and wide. A directory is opened by name
# in the open one, and left through ``..`` only if that is still its parent. So the walk takes two
# descriptors and no recursion, and never leaves the tree or its file system.

AT_ONCE = 1000
"""Directory entries that are read before they are processed."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class _Level(Struct):
    name: str
    device: int
    inode: int
    below: list[str] = field(default_factory=list)


class Tree:
    """A walk down into a tree and up again; ``here`` is the open directory. Close it."""

    def __init__(self, path: str) -> None:
        """Open the top. Raises OSError; NotADirectoryError for a symlink too."""
        self.here = os.open(path, _OPEN)
        self._way = [_level("", self.here)]

    @property
    def at_top(self) -> bool:
        """Whether the open directory is the top of the tree."""
        return len(self._way) == 1

    @property
    def below(self) -> list[str]:
        """For the caller's use: names of subdirectories that are still to be entered."""
        return self._way[-1].below

    def down(self, name: str) -> None:
        """Enter a subdirectory of the open directory; stay here on an error.

        Raises:
            OSError: it is absent or no longer a directory; EXDEV: something is mounted there.
        """
        inside = os.open(name, _OPEN, dir_fd=self.here)
        level = _level(name, inside)
        if level.device != self._way[0].device:
            os.close(inside)
            raise OSError(errno.EXDEV, "something is mounted on it", name)
        os.close(self.here)
        self.here = inside
        self._way.append(level)

    def up(self) -> str:
        """Leave for the parent; returns the name in it. Raises OSError: the directory was moved."""
        above = os.open("..", _OPEN, dir_fd=self.here)
        os.close(self.here)
        self.here = above
        left = self._way.pop()
        there, desired = os.fstat(above), self._way[-1]
        if (there.st_dev, there.st_ino) != (desired.device, desired.inode):
            raise OSError(errno.ESTALE, "a directory was moved meanwhile", left.name)
        return left.name

    def close(self) -> None:
        """Close the open directory."""
        os.close(self.here)


def _level(name: str, directory: int) -> _Level:
    found = os.fstat(directory)
    return _Level(name, found.st_dev, found.st_ino)


def remove_tree(path: str, *, only_directories: bool = False) -> None:
    """Remove a directory and everything in it.

    Args:
        path: of the directory; a symlink is not followed.
        only_directories: a file in it ends the removal.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: something could not be removed, or is mounted there; what came before is removed.
    """
    tree = Tree(path)
    try:
        while True:
            if tree.below:
                tree.down(tree.below.pop())
                continue
            if _remove_files(tree, only_directories):
                continue
            if tree.at_top:
                break
            name = tree.up()
            os.rmdir(name, dir_fd=tree.here)
    finally:
        tree.close()
    os.rmdir(path)  # noqa: PTH106 - the same call as for the others


def _remove_files(tree: Tree, only_directories: bool) -> bool:
    """Remove the open directory's files and note its subdirectories; whether it had entries."""
    with os.scandir(tree.here) as entries:
        found = list(islice(entries, AT_ONCE))
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            tree.below.append(entry.name)
        elif only_directories:
            raise OSError(errno.ENOTEMPTY, "there is a file in it", entry.name)
        else:
            os.unlink(entry.name, dir_fd=tree.here)
    return bool(found)


def holds_mount(path: str, device: int) -> bool:
    """Whether a file system other than ``device`` is mounted in a tree, at its top or below.

    Raises OSError: it can't be inspected.
    """
    tree = Tree(path)
    try:
        if os.fstat(tree.here).st_dev != device:
            return True
        tree.below.extend(_directories(tree.here))
        while True:
            if tree.below:
                tree.down(tree.below.pop())
                tree.below.extend(_directories(tree.here))
            elif tree.at_top:
                return False
            else:
                tree.up()
    except OSError as error:
        if error.errno == errno.EXDEV:
            return True
        raise
    finally:
        tree.close()


def _directories(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


class KeyPair(Struct, frozen=True):
    """A certificate and its key: PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> KeyPair:
        """``NAME.crt`` and ``NAME.key`` in a directory."""
        return cls(directory / f"{name}.crt", directory / f"{name}.key")

    def loads(self) -> bool:
        """Whether both exist and belong together."""
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            return True
        return False

    def store(self, certificate: bytes, key: bytes) -> None:
        """Write both (PEM) atomically, as private files. Raises OSError."""
        self.certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self.key, key)
        write_private(self.certificate, certificate)

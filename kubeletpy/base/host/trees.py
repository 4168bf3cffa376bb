"""Walks directory trees made by a container, which may be arbitrarily deep and wide.

A directory is opened by name in the open one, and left through ``..`` only if that is still its
parent. So no symlink is followed, and however deep the tree is, the walk takes two descriptors and
no recursion. Blocking: call it on a thread. Must never leave the tree, nor its file system.
"""

from __future__ import annotations

import errno
import os
from itertools import islice

from kubeletpy.base.structs import Struct, field

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
        there, wanted = os.fstat(above), self._way[-1]
        if (there.st_dev, there.st_ino) != (wanted.device, wanted.inode):
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

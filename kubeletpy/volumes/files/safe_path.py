"""Opens a path inside a volume even while a container may be changing it.

Every component is opened relative to the directory before it, never following a symlink. This
module reads and resolves symlinks itself, so they cannot lead out: ".." goes back along directories
that were opened, at most to the volume itself. Blocking, for threads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack

from kubeletpy.base.host.files import make_directory
from kubeletpy.volumes.files.paths import UnsafePath

MAX_LINKS = 40
"""The kernel's limit: more symlinks in one path count as a loop."""
MAX_DEPTH = 512
_PART = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beneath(volume: str, parts: Sequence[str], *, create: bool = False) -> int:
    """An O_PATH descriptor of a path inside a volume; the caller closes it.

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

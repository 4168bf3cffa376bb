"""Files and directories below the node's log directory, opened without leaving it.

A pod that mounts /var/log can put links there: links that lead out are refused, as is everything
except regular files and directories. Blocking: call it on a thread.
"""

from __future__ import annotations

import html
import os
import stat
from urllib.parse import quote

from kubeletpy.base.host.inotify import HeldFd
from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.volumes.files.paths import UnsafePath
from kubeletpy.volumes.files.safe_path import open_beneath

BLOCK = 256 << 10
MAX_ENTRIES = 10_000
_REOPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class RefusedPath(OSError):
    """The path leads out of the log directory, or is neither a file nor a directory."""


class NodeLogFile(HidesFields, Struct):
    """An open file or directory; close it. Size (bytes), time (Unix seconds) are as of opening."""

    is_directory: bool
    size: int
    modified: float
    held: Hidden[HeldFd]

    def read(self, start: int, end: int) -> bytes:
        """Bytes of a file from ``start``, at most one block and not beyond ``end``."""
        with self.held.in_use() as fd:
            return os.pread(fd, min(BLOCK, end - start), start) if fd >= 0 else b""

    def listing(self) -> str:
        """The names in a directory as a page of links; only the first ones if very many."""
        with self.held.in_use() as fd:
            names: list[str] = []
            with os.scandir(fd) as entries:
                for entry in entries:
                    names.append(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""))
                    if len(names) == MAX_ENTRIES:
                        break
        lines = (f'<a href="{_link(name)}">{_shown(name)}</a>\n' for name in sorted(names))
        return f"<!doctype html>\n<pre>\n{''.join(lines)}</pre>\n"

    def close(self) -> None:
        """Release it."""
        self.held.close()


def open_entry(root: str, path: str) -> NodeLogFile:
    """Open the file or directory at a path below ``root``.

    Raises:
        RefusedPath: it leads out, or is neither a file nor a directory.
        OSError: it does not exist or can't be opened.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise RefusedPath("invalid path")
    try:
        found = open_beneath(root, parts)
    except UnsafePath as error:
        raise RefusedPath(str(error)) from None
    try:
        about = os.fstat(found)
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
            raise RefusedPath("neither a file nor a directory")
        # opens what was found and checked, whatever is at the path by now
        held = HeldFd(os.open(f"/proc/self/fd/{found}", _REOPEN))
    finally:
        os.close(found)
    return NodeLogFile(stat.S_ISDIR(about.st_mode), about.st_size, about.st_mtime, held)


def _link(name: str) -> str:
    # a first segment with a colon would be read as a scheme
    return "./" * (":" in name) + quote(name.encode("utf-8", "surrogateescape"))


def _shown(name: str) -> str:
    return html.escape(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))

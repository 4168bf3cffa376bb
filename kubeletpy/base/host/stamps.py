"""Identifies the state of a file without reading it, to notice changes.

Must never open a file.
"""

from __future__ import annotations

from pathlib import Path

Stamp = tuple[int, int]
"""Time of the last change in nanoseconds, and inode."""


def stamp(path: Path) -> Stamp | None:
    """A file's stamp, following symlinks; None if it can't be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino

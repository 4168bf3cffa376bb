"""Files that are written whole or not at all; private ones are readable by root only."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors

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

"""hostPath volumes: what must be at the path, or is made there. Nothing of it is ever owned.

Blocking, for threads. Source: docs/reference/behaviour.md, i3.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

_CHECKS: dict[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


class HostPathError(Exception):
    """What is at the path is not what the volume's type asks for."""


def prepare(path: str, kind: str) -> None:
    """Make the path if its type says so, and check it.

    Raises:
        HostPathError: something else is there, or nothing.
        OSError: it cannot be made or looked at.
    """
    if kind == "":
        return
    if kind not in _CHECKS:
        raise HostPathError(f"hostPath type check failed: unknown type {kind!r}")
    fits, what = _CHECKS[kind]
    target = Path(path)
    if kind == "DirectoryOrCreate" and not target.exists():
        _make_directories(target)
    if kind == "FileOrCreate" and not target.exists():
        _make_file(target)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        raise HostPathError(f"hostPath type check failed: {path} is not {what}") from None
    if not fits(mode):
        raise HostPathError(f"hostPath type check failed: {path} is not {what}")


def _make_directories(path: Path) -> None:
    missing = [path, *path.parents]
    for directory in reversed([p for p in missing if not p.exists()]):
        directory.mkdir(0o755, exist_ok=True)
        directory.chmod(0o755)


def _make_file(path: Path) -> None:
    if not path.parent.is_dir():
        raise HostPathError(f"hostPath type check failed: {path.parent} does not exist")
    try:
        path.touch(0o644, exist_ok=False)
    except FileExistsError:
        return
    path.chmod(0o644)

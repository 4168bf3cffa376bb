"""Tables of /proc about one process: its mounts (/proc/PID/mountinfo) and its user ids. Pure.

Pods choose names in the mount table: what is mounted (the part of a volume behind a subPath) and,
with propagation, where. The kernel escapes only blank, tab, newline and backslash, in octal.
Anything that is not a line of this table is skipped: it never stands for a mount.
Source: proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from os import fsdecode, fsencode

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import lines

_LINE = re.compile(
    rb"[0-9]+ [0-9]+ (?P<device>[0-9]+:[0-9]+) (?P<root>[^ ]+) (?P<point>/[^ ]*) [^ ]+ "
    rb"(?P<tags>(?:[^ ]+ )*?)- [^ ]+ (?P<source>[^ ]*) (?P<options>.*)",
    re.DOTALL,
)
_ESCAPED = re.compile(rb"\\([0-7]{3})")
_IS_ESCAPED = re.compile(rb"[ \t\n\\]")


class MountPoint(Struct, frozen=True):
    """One mount.

    Attributes:
        path: mount point, as the ``os`` module spells names (with surrogate escapes).
        shared: other mount namespaces see mounts below it.
        device: device number of the file system, ``major:minor``.
        root: the part of the file system that is mounted, ``/`` for all of it.
        labels: its files can have SELinux labels of their own.
        source: what is mounted, as the file system calls it: a device, ``server:/path``.
    """

    path: str
    shared: bool
    device: str = ""
    root: str = ""
    labels: bool = False
    source: str = ""


def parse(mountinfo: bytes, containing: str = "") -> list[MountPoint]:
    """The mounts, oldest first: all of them, or at least those whose path contains a text.

    A node with many pods has thousands, and each takes some µs.
    """
    lines, text = mountinfo.split(b"\n"), fsencode(containing)
    if text and not _IS_ESCAPED.search(text):
        lines = [line for line in lines if text in line]
    return [
        MountPoint(
            fsdecode(_ESCAPED.sub(_byte, match["point"])),
            any(tag.startswith(b"shared:") for tag in match["tags"].split(b" ")),
            match["device"].decode(),
            fsdecode(_ESCAPED.sub(_byte, match["root"])),
            b"seclabel" in match["options"].split(b","),
            fsdecode(_ESCAPED.sub(_byte, match["source"])),
        )
        for line in lines
        if (match := _LINE.fullmatch(line)) is not None
    ]


def mounts_below(table: list[MountPoint], directory: str) -> list[str]:
    """Mount points at or below a directory, newest first (they may be stacked)."""
    below = f"{directory.rstrip('/')}/"
    return [m.path for m in reversed(table) if m.path == directory or m.path.startswith(below)]


def references(table: list[MountPoint], path: str) -> list[str]:
    """Other mount points of what is mounted at a path; empty if nothing is mounted there."""
    here = next((mount for mount in reversed(table) if mount.path == path), None)
    if here is None:
        return []
    same = (here.device, here.root)
    return [m.path for m in table if m.path != path and (m.device, m.root) == same]


def is_shared(table: list[MountPoint], path: str) -> bool:
    """Whether the mount that holds a path is shared."""
    longest, shared = "", False
    for mount in table:
        inside = mount.path in ("/", path) or path.startswith(f"{mount.path}/")
        if inside and len(mount.path) >= len(longest):
            longest, shared = mount.path, mount.shared
    return shared


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes((int(match[1], 8) & 0xFF,))


# User namespaces. Source: docs/reference/behaviour.md, o1.

_ALL_IDS = [0, 0, 4294967295]


def in_user_namespace(uid_map: str | None) -> bool:
    """Whether a ``/proc/self/uid_map`` is that of a user namespace other than the initial one.

    Args:
        uid_map: the text of the file; None: the kernel has no such file. It is empty as long as a
            new namespace has no ids. Only its first line counts; one that is not three numbers
            belongs to no namespace.
    """
    if uid_map is None:
        return False
    first = next(iter(lines(uid_map)), "")
    if not first:
        return True
    parts = first.split()[:3]
    if len(parts) < len(_ALL_IDS) or not all(word.isascii() and word.isdigit() for word in parts):
        return False
    return [int(word[:20]) for word in parts] != _ALL_IDS


def inner_ids(id_map: str) -> list[tuple[int, int]]:
    """(first, count) of the ids in a user namespace, from the text of its map.

    Example: ``"0 1000 1"`` is ``[(0, 1)]``.
    """
    rows = [line.split() for line in lines(id_map)]
    return [(int(row[0]), int(row[2])) for row in rows if len(row) == len(_ALL_IDS)]

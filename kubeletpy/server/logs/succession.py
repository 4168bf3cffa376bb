"""Which file of a container's log comes after the one just read.

A reader may be several rotations behind: then the next file is not the log itself but one of its
rotations, perhaps compressed by now. Files are identified by inode, a compressed one by the time of
its last line, which compression keeps. Must never return a file twice, nor one of another log.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from kubeletpy.base.host.files import open_folder_of
from kubeletpy.base.structs import Struct
from kubeletpy.server.logs.files import LogFile
from kubeletpy.server.logs.rotation_plan import COMPRESSED, UNFINISHED

_ATTEMPTS = 8
"""How often to retry when a file has been renamed or compressed between listing and opening."""


class LogFileEntry(Struct, frozen=True):
    """A file in a log's directory: (device, inode), time of the last write in nanoseconds."""

    name: str
    identity: tuple[int, int]
    modified: int
    size: int


def next_entry(
    log: str, entries: Iterable[LogFileEntry], identity: tuple[int, int], modified: int
) -> LogFileEntry | None:
    """The file after the one with that identity and time; None while there is none. Pure.

    ``log`` is the name being written to; it does not count while empty, because until then the
    runtime may still write to the previous file.
    """
    by_stem: dict[str, LogFileEntry] = {}
    for entry in sorted(entries, key=lambda each: each.name, reverse=True):
        if entry.name == log:
            continue
        if entry.name.startswith(f"{log}.") and not entry.name.endswith(UNFINISHED):
            # while a file is being compressed both exist: the plain one, sorted last, counts
            by_stem[entry.name.removesuffix(COMPRESSED)] = entry
    files = [by_stem[stem] for stem in sorted(by_stem)]
    files += [entry for entry in entries if entry.name == log]
    after = _place(files, identity, modified) + 1
    if after >= len(files) or (files[after].name == log and not files[after].size):
        return None
    return files[after]


def _place(files: list[LogFileEntry], identity: tuple[int, int], modified: int) -> int:
    for at, entry in reversed(list(enumerate(files))):
        if entry.identity == identity:  # by its last name: while being renamed it has two
            return at
    for at, entry in enumerate(files):
        if entry.name.endswith(COMPRESSED) and entry.modified == modified:
            return at
    older = [at for at, entry in enumerate(files) if entry.modified < modified]
    return older[-1] if older else -1


def open_next(root: str, log: LogFile) -> LogFile | None:
    """Open the file that follows an open one; None while there is none. Blocking.

    Raises:
        OSError: the directory can't be read, or the file can't be opened.
    """
    if log.is_current():
        return None
    if log.real_path:  # the runtime rotates it itself, and has begun another
        try:
            return LogFile(root, log.path, container_id=log.container_id)
        except FileNotFoundError:
            return None
    for _ in range(_ATTEMPTS):
        try:
            found = _find(root, log)
            if found is None:
                return None
            opened = LogFile(root, log.path, found.name)
        except FileNotFoundError:
            continue
        if opened.identity == found.identity:
            return opened
        opened.close()
    return None


def _find(root: str, log: LogFile) -> LogFileEntry | None:
    folder, name = open_folder_of(root, log.path)
    try:
        entries = []
        for each in os.listdir(folder):  # noqa: PTH208 - a folder by its descriptor
            if not each.startswith(name):
                continue
            found = os.stat(each, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                identity = (found.st_dev, found.st_ino)
                entries.append(LogFileEntry(each, identity, found.st_mtime_ns, found.st_size))
    finally:
        os.close(folder)
    return next_entry(name, entries, log.identity, log.modified())

"""Pull records on disk: ``{root}/image_manager/pulling`` and ``pulled``, one small file each.

Directories are 0700, files 0600, replaced atomically. Blocking: call it on a thread. Must never
decide anything from what it reads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Struct, field
from kubeletpy.images.records.model import (
    FILE_PREFIX,
    MalformedRecord,
    PulledRecord,
    file_name,
    read_intent,
    read_record,
    write_intent,
    write_record,
)

TEMPORARY = ".tmp"
MAX_FILE = 1 << 20
"""Longest file read, in bytes."""


class LoadedRecords(Struct):
    """The contents of the directories."""

    intents: list[str] = field(default_factory=list)
    """Images, oldest first."""
    records: list[PulledRecord] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Names of files in ``pulled`` that are not records."""
    problems: list[str] = field(default_factory=list)


class RecordFiles:
    """The two directories."""

    def __init__(self, root: Path) -> None:
        """``root``: the agent's root directory."""
        self._pulling = root / "image_manager" / "pulling"
        self._pulled = root / "image_manager" / "pulled"

    def load(self) -> LoadedRecords:
        """Read everything; unfinished files are removed. Raises OSError."""
        for directory in (self._pulling.parent, self._pulling, self._pulled):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = LoadedRecords()
        for path in self._list(self._pulling):
            try:
                image = read_intent(_read(path))
                _check_name(path, image)
                found.intents.append(image)
            except (MalformedRecord, OSError) as error:
                found.problems.append(f"{path}: {_why(error)}")
        for path in self._list(self._pulled):
            try:
                found.records.append(_read_record(path))
            except (MalformedRecord, OSError) as error:
                found.unreadable.append(path.name)
                found.problems.append(f"{path}: {_why(error)}")
        return found

    def write_intent(self, image: str) -> None:
        """Record that an image is being pulled. Raises OSError."""
        _replace(self._pulling / file_name(image), write_intent(image))

    def remove_intent(self, image: str) -> None:
        """The pull has ended. Raises OSError."""
        (self._pulling / file_name(image)).unlink(missing_ok=True)

    def read_record(self, image_ref: str) -> PulledRecord | None:
        """One record; None when there is none.

        Raises:
            MalformedRecord: the file is not a record.
            OSError: it can't be read.
        """
        try:
            return _read_record(self._pulled / file_name(image_ref))
        except FileNotFoundError:
            return None

    def write_record(self, record: PulledRecord) -> None:
        """Write a record. Raises OSError."""
        _replace(self._pulled / file_name(record.image_ref), write_record(record))

    def remove_record(self, image_ref: str) -> None:
        """Its image was removed. Raises OSError."""
        (self._pulled / file_name(image_ref)).unlink(missing_ok=True)

    def remove_file(self, name: str) -> None:
        """Remove a file that is not a record. Raises OSError."""
        (self._pulled / name).unlink(missing_ok=True)

    def _list(self, directory: Path) -> Iterator[Path]:
        """Each of our files, oldest first; unfinished ones are removed."""
        entries = [entry for entry in os.scandir(directory) if entry.name.startswith(FILE_PREFIX)]
        entries = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
        for entry in sorted(entries, key=_age):
            path = Path(entry.path)
            if entry.name.endswith(TEMPORARY):
                path.unlink(missing_ok=True)
            else:
                yield path


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_FILE)


def _read_record(path: Path) -> PulledRecord:
    record = read_record(_read(path))
    _check_name(path, record.image_ref)
    return record


def _check_name(path: Path, image: str) -> None:
    if file_name(image) != path.name:
        raise MalformedRecord("the file is named for another image")


def _why(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


def _replace(path: Path, data: bytes) -> None:
    """Durable before a pull goes on: after a power cut a pulled image must not seem preloaded."""
    temporary = path.with_name(path.name + TEMPORARY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        with complete_errors(path, replace_path=True):
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise

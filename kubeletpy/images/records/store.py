"""Records and intents in memory and on disk, kept in sync: the disk first, then memory.

Files are accessed in threads, one at a time: changing anything requires ``lock``, and whoever holds
it is never canceled, because a thread goes on. Must never decide who may use an image.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import flush_directory, remove_unfinished, write_private
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.images.records import model as records_model
from kubeletpy.metrics.resources import PullRecordMetrics

TEMPORARY = ".tmp"
"""Ends the names of files that the kubelet has not finished."""
MAX_FILE = 1 << 20
"""Longest file read, in bytes."""


class LoadedRecords(Struct):
    """The contents of the directories."""

    intents: list[str] = field(default_factory=list)
    """Images, oldest first."""
    records: list[records_model.PulledRecord] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Names of files in ``pulled`` that are not records."""
    problems: list[str] = field(default_factory=list)


class RecordFiles(Component):
    """Records on disk: ``{root}/image_manager/pulling`` and ``pulled``, one small file each.

    Directories are 0700, files 0600, replaced atomically. Blocking: call it in a thread.
    """

    root: Path
    """The agent's root directory."""

    def __post_init__(self) -> None:
        self._pulling = self.root / "image_manager" / "pulling"
        self._pulled = self.root / "image_manager" / "pulled"

    def load(self) -> LoadedRecords:
        """Read everything; unfinished files are removed. Raises OSError."""
        for directory in (self._pulling.parent, self._pulling, self._pulled):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            remove_unfinished(directory)
        found = LoadedRecords()
        for path in self._list(self._pulling):
            try:
                image = records_model.read_intent(_read(path))
                _check_name(path, image)
                found.intents.append(image)
            except (records_model.MalformedRecord, OSError) as error:
                found.problems.append(f"{path}: {_why(error)}")
        for path in self._list(self._pulled):
            try:
                found.records.append(_read_record(path))
            except (records_model.MalformedRecord, OSError) as error:
                found.unreadable.append(path.name)
                found.problems.append(f"{path}: {_why(error)}")
        return found

    def write_intent(self, image: str) -> None:
        """Record that an image is being pulled. Raises OSError."""
        _replace(self._pulling / records_model.file_name(image), records_model.write_intent(image))

    def remove_intent(self, image: str) -> None:
        """The pull has ended. Raises OSError."""
        (self._pulling / records_model.file_name(image)).unlink(missing_ok=True)

    def read_record(self, image_ref: str) -> records_model.PulledRecord | None:
        """One record; None when there is none.

        Raises:
            MalformedRecord: the file is not a record.
            OSError: it can't be read.
        """
        try:
            return _read_record(self._pulled / records_model.file_name(image_ref))
        except FileNotFoundError:
            return None

    def write_record(self, record: records_model.PulledRecord) -> None:
        """Write a record. Raises OSError."""
        _replace(
            self._pulled / records_model.file_name(record.image_ref),
            records_model.write_record(record),
        )

    def remove_record(self, image_ref: str) -> None:
        """Its image was removed. Raises OSError."""
        (self._pulled / records_model.file_name(image_ref)).unlink(missing_ok=True)

    def remove_file(self, name: str) -> None:
        """Remove a file that is not a record. Raises OSError."""
        (self._pulled / name).unlink(missing_ok=True)

    def _list(self, directory: Path) -> Iterator[Path]:
        """Each of our files, oldest first; unfinished ones are removed."""
        entries = [
            entry
            for entry in os.scandir(directory)
            if entry.name.startswith(records_model.FILE_PREFIX)
        ]
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


def _read_record(path: Path) -> records_model.PulledRecord:
    record = records_model.read_record(_read(path))
    _check_name(path, record.image_ref)
    return record


def _check_name(path: Path, image: str) -> None:
    if records_model.file_name(image) != path.name:
        raise records_model.MalformedRecord("the file is named for another image")


def _why(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


def _replace(path: Path, data: bytes) -> None:
    """Durable before a pull goes on: after a power cut a pulled image must not seem preloaded."""
    write_private(path, data)
    flush_directory(path.parent)


logger = logging.getLogger(__name__)

MAX_INTENTS = 1024
MAX_RECORDS = 2000


class RecordStore(Component):
    """The records of pulls. All methods may raise OSError."""

    files: RecordFiles
    clock: Clock
    metrics: PullRecordMetrics
    max_intents: int = MAX_INTENTS
    """Kept without a running pull."""
    max_records: int = MAX_RECORDS
    """Held in memory."""

    def __post_init__(self) -> None:
        self.max_intents = max(1, min(self.max_intents, MAX_INTENTS))
        self.max_records = max(1, min(self.max_records, MAX_RECORDS))
        self.intents = records_model.Intents()
        self._index = records_model.RecordIndex(self.max_records)
        self._on_disk = 0
        self.lock = asyncio.Lock()

    async def load(self) -> list[str]:
        """Read the disk; returns the images of its intents."""
        loaded = await asyncio.to_thread(self.files.load)
        for problem in loaded.problems:
            logger.warning("pull record skipped", extra={"problem": problem})
        self._index.fill(loaded.records, loaded.unreadable)
        self._on_disk = len(loaded.records)
        return loaded.intents

    async def find(self, image_ref: str) -> records_model.PulledRecord | None:
        """Return the record of an image, nearly always from memory.

        Raises:
            MalformedRecord: there is one, but it is unreadable.
        """
        if self._index.complete or self._index.get(image_ref) is not None:
            return await self._find(image_ref)
        async with self.lock:  # or a change overtakes what is read here
            return await self._find(image_ref)

    async def _find(self, image_ref: str) -> records_model.PulledRecord | None:
        found = self._index.get(image_ref)
        if found is not None:
            return found
        if records_model.file_name(image_ref) in self._index.unreadable:
            raise records_model.MalformedRecord("the file is no pull record")
        if self._index.complete:
            return None
        found = await asyncio.to_thread(self.files.read_record, image_ref)
        if found is not None:
            self._index.put(found)
        return found

    async def grow(self, image_ref: str, repository: str, grants: records_model.Grants) -> None:
        """Add to the record of an image, created if missing.

        Writes only if something is new. In memory the record is updated anyway: a :meth:`prune`
        whose list is older than this pull must keep it.
        """
        try:
            old = await self._find(image_ref)
        except records_model.MalformedRecord:
            old = None
        now = self.clock.now()
        new = records_model.with_grants(old, image_ref, repository, grants, now)
        if new is old:
            self._index.put(replace(new, updated_at=now))
            return
        await asyncio.to_thread(self.files.write_record, new)
        self._on_disk += old is None
        self._index.put(new)

    async def announce(self, image: str, intent: records_model.Intent) -> None:
        """Write an intent; ``image`` is as in the pod."""
        if image in intent.names:
            return
        intent.names.add(image)  # also if this fails: the file may exist
        await asyncio.to_thread(self.files.write_intent, image)

    async def withdraw(self, name: str, intent: records_model.Intent) -> None:
        """Remove an intent, if it is over."""
        for image in sorted(intent.names):
            if not intent.over:
                return
            await asyncio.to_thread(self.files.remove_intent, image)
            intent.names.discard(image)
        if intent.over:
            self.intents.drop(name, intent)

    async def prune(self, present: Collection[str], before: float) -> None:
        """Remove records, last updated before a Unix time, of images that are not present."""
        if not self._index.complete:
            await self.load()
        for record in self._index:
            # whole seconds: files are no more precise
            if record.image_ref not in present and int(record.updated_at) < int(before):
                await asyncio.to_thread(self.files.remove_record, record.image_ref)
                self._index.remove(record.image_ref)
                self._on_disk -= 1
        names = {records_model.file_name(image_ref) for image_ref in present}
        for name in self._index.unreadable - names:
            await asyncio.to_thread(self.files.remove_file, name)
            self._index.unreadable.discard(name)

    def count(self) -> None:
        """Report the number of intents and records to the metrics."""
        intents, records = len(self.intents), len(self._index)
        self.metrics.records_on_disk(intents, self._on_disk)
        self.metrics.records_in_memory(
            intents * 100 // self.max_intents, records * 100 // self.max_records
        )

"""Records and intents in memory and on disk, kept in sync: the disk first, then memory.

Files are accessed on threads, one at a time: changing anything requires ``lock``. Must never decide
who may use an image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.images.metrics import RecordMetrics
from kubeletpy.images.records.files import RecordFiles
from kubeletpy.images.records.index import RecordIndex
from kubeletpy.images.records.intents import Intent, Intents
from kubeletpy.images.records.model import (
    Grants,
    MalformedRecord,
    PulledRecord,
    file_name,
    with_grants,
)

logger = logging.getLogger(__name__)

MAX_INTENTS = 1024
MAX_RECORDS = 2000


class RecordStore:
    """The records of pulls. All methods may raise OSError."""

    def __init__(
        self,
        files: RecordFiles,
        clock: Clock,
        metrics: RecordMetrics,
        *,
        max_intents: int = MAX_INTENTS,
        max_records: int = MAX_RECORDS,
    ) -> None:
        """``max_records``: held in memory; ``max_intents``: kept without a running pull."""
        self._files = files
        self._clock = clock
        self._metrics = metrics
        self.max_intents = max(1, min(max_intents, MAX_INTENTS))
        self._max_records = max(1, min(max_records, MAX_RECORDS))
        self.intents = Intents()
        self._index = RecordIndex(self._max_records)
        self._on_disk = 0
        self.lock = asyncio.Lock()

    async def load(self) -> list[str]:
        """Read the disk; returns the images of its intents."""
        loaded = await asyncio.to_thread(self._files.load)
        for problem in loaded.problems:
            logger.warning("pull record skipped", extra={"problem": problem})
        self._index.fill(loaded.records, loaded.unreadable)
        self._on_disk = len(loaded.records)
        return loaded.intents

    async def find(self, image_ref: str) -> PulledRecord | None:
        """The record of an image, nearly always from memory.

        Raises:
            MalformedRecord: there is one, but it is unreadable.
        """
        found = self._index.get(image_ref)
        if found is not None:
            return found
        if file_name(image_ref) in self._index.unreadable:
            raise MalformedRecord("the file is no pull record")
        if self._index.complete:
            return None
        found = await asyncio.to_thread(self._files.read_record, image_ref)
        if found is not None:
            self._index.put(found)
        return found

    async def grow(self, image_ref: str, repository: str, grants: Grants) -> None:
        """Add to the record of an image, created if missing.

        Writes only if something is new. In memory the record is updated anyway: a :meth:`prune`
        whose list is older than this pull must keep it.
        """
        try:
            old = await self.find(image_ref)
        except MalformedRecord:
            old = None
        now = self._clock.now()
        new = with_grants(old, image_ref, repository, grants, now)
        if new is old:
            self._index.put(replace(new, updated_at=now))
            return
        await asyncio.to_thread(self._files.write_record, new)
        self._on_disk += old is None
        self._index.put(new)

    async def announce(self, image: str, intent: Intent) -> None:
        """Write an intent; ``image`` is as in the pod."""
        if image in intent.names:
            return
        try:
            await asyncio.to_thread(self._files.write_intent, image)
        finally:
            # even if this is cancelled: the thread goes on and creates the file
            intent.names.add(image)

    async def withdraw(self, name: str, intent: Intent) -> None:
        """Remove an intent, if it is over."""
        for image in sorted(intent.names):
            if not intent.over:
                return
            await asyncio.to_thread(self._files.remove_intent, image)
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
                await asyncio.to_thread(self._files.remove_record, record.image_ref)
                self._index.remove(record.image_ref)
                self._on_disk -= 1
        names = {file_name(image_ref) for image_ref in present}
        for name in self._index.unreadable - names:
            await asyncio.to_thread(self._files.remove_file, name)
            self._index.unreadable.discard(name)

    def count(self) -> None:
        """Update the metrics."""
        intents, records = len(self.intents), len(self._index)
        self._metrics.records_on_disk(intents, self._on_disk)
        self._metrics.records_in_memory(
            intents * 100 // self.max_intents, records * 100 // self._max_records
        )

"""The pulled records in memory: read on a container start instead of the files. Pure.

Bounded: beyond its limit the least recently used records live on disk only, and what is not found
here is looked up there. Must never do I/O.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from kubeletpy.images.records.model import PulledRecord, file_name


class RecordIndex:
    """Records by image ref, at most ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: OrderedDict[str, PulledRecord] = OrderedDict()
        self.unreadable: set[str] = set()
        """Names of files that are not records."""
        self.complete = False
        """Whether a record that is not here does not exist."""

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[PulledRecord]:
        return iter(tuple(self._records.values()))

    def fill(self, records: Iterable[PulledRecord], unreadable: Iterable[str]) -> None:
        """Load what the disk holds, oldest first."""
        self._records.clear()
        self.unreadable = set(unreadable)
        self.complete = True
        for record in records:
            self.put(record)

    def get(self, image_ref: str) -> PulledRecord | None:
        """The record, if it is here."""
        record = self._records.get(image_ref)
        if record is not None:
            self._records.move_to_end(image_ref)
        return record

    def put(self, record: PulledRecord) -> None:
        """Keep a record that is on disk."""
        self._records[record.image_ref] = record
        self._records.move_to_end(record.image_ref)
        self.unreadable.discard(file_name(record.image_ref))
        while len(self._records) > self._limit:
            self._records.popitem(last=False)
            self.complete = False

    def remove(self, image_ref: str) -> None:
        """Forget a record that has been removed."""
        self._records.pop(image_ref, None)

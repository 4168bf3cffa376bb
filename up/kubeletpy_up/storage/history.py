"""The recent past: a bounded record of changes, from which watches catch up. Pure.

Changes are kept as JSON text, which is an order of magnitude smaller than decoded objects, and
decoded again when a watch needs them.
"""

from __future__ import annotations

import json
from collections import deque

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy_up.errors import removed


class Change(Struct, frozen=True):
    """One write. ``object`` of a DELETED is the last state with the deletion's resourceVersion."""

    revision: int
    type: str
    resource: str
    object: JSON
    text: str
    previous: JSON | None


def versioned(obj: JSON, revision: int) -> JSON:
    """A copy of an object with another resourceVersion."""
    return {**obj, "metadata": {**obj.get("metadata", {}), "resourceVersion": str(revision)}}


class Past(Struct, frozen=True):
    """A change with its objects as JSON text."""

    revision: int
    at: float
    type: str
    resource: str
    text: str
    previous: str | None

    def change(self) -> Change:
        """The change with its objects decoded."""
        previous = json.loads(self.previous) if self.previous is not None else None
        return Change(
            self.revision, self.type, self.resource, json.loads(self.text), self.text, previous
        )


class History:
    """The recent changes, one record per revision, without gaps.

    Args:
        revision: where it starts; the record has nothing earlier.
        count, seconds, size: how much is kept (records, age, bytes); the first bound reached wins.
    """

    def __init__(self, revision: int, count: int, seconds: float, size: int) -> None:
        self._oldest = revision
        self._newest = revision
        self._limits = (count, seconds, size)
        self._records: deque[Past] = deque()
        self._bytes = 0

    def add(self, past: Past) -> None:
        """Record the next revision, and drop what is too old."""
        count, seconds, size = self._limits
        records = self._records
        records.append(past)
        self._newest = past.revision
        self._bytes += len(past.text)
        while records and (
            len(records) > count or self._bytes > size or records[0].at < past.at - seconds
        ):
            dropped = records.popleft()
            self._bytes -= len(dropped.text)
            self._oldest = dropped.revision

    def knows(self, revision: int) -> bool:
        """Whether every change after ``revision`` is in the record."""
        return self._oldest <= revision <= self._newest

    def weight(self, resource: str) -> int:
        """Length of the JSON of a resource's changes, in characters."""
        return sum(len(past.text) for past in self._records if past.resource == resource)

    def since(self, revision: int, resource: str) -> list[Change]:
        """A resource's changes after ``revision``, oldest first.

        Raises:
            ApiError: 410, the record does not reach that far back (or forward).
        """
        return [past.change() for past in self.past_since(revision, resource)]

    def past_since(self, revision: int, resource: str) -> list[Past]:
        """The same, not decoded. Raises ApiError 410."""
        if revision < self._oldest:
            raise removed(f"too old resource version: {revision} ({self._oldest})")
        if revision > self._newest:
            raise removed(f"unknown resource version: {revision} (now {self._newest})")
        behind = self._newest - revision
        recent = list(self._records)[len(self._records) - behind :] if behind else []
        return [past for past in recent if past.resource == resource]

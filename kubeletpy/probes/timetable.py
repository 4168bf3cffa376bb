"""One timer for everything that is due: a heap on the event loop's clock.

With a timer each, hundreds of probes would wake the loop each time; here those due within the same
SLOT_S run together, at most that much late.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Generic, TypeVar

SLOT_S = 0.02

T = TypeVar("T")


class TimetableEntry(Generic[T]):
    """Something that is due."""

    __slots__ = ("at", "item")

    def __init__(self, at: float, item: T) -> None:
        self.at = at
        self.item: T | None = item
        """None: cancelled."""


class Timetable(Generic[T]):
    """Calls ``on_due`` with each item when its time has come."""

    def __init__(self, on_due: Callable[[T], None]) -> None:
        self._on_due = on_due
        self._heap: list[tuple[float, int, TimetableEntry[T]]] = []
        self._number = 0
        self._empty = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap) - self._empty

    def add(self, at: float, item: T) -> TimetableEntry[T]:
        """Schedule ``item`` at ``at``, in seconds of the loop."""
        entry = TimetableEntry(at, item)
        self._number += 1
        heapq.heappush(self._heap, (at, self._number, entry))
        self._arm()
        return entry

    def take_back(self, entry: TimetableEntry[T]) -> None:
        """Cancel an entry; its slot is removed when its time comes, or when too many are empty."""
        if entry.item is None:
            return
        entry.item = None
        self._empty += 1
        if self._empty > max(64, len(self)):
            self._empty = 0
            self._heap = [each for each in self._heap if each[2].item is not None]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """Cancel everything."""
        for _, _, entry in self._heap:
            entry.item = None
        self._heap.clear()
        self._empty = 0
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].item is None:
            heapq.heappop(self._heap)
            self._empty -= 1
        if not self._heap:
            return
        first = self._heap[0][0]
        at = max(first, math.ceil(first / SLOT_S) * SLOT_S)
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)[2]
            item, entry.item = entry.item, None
            if item is None:
                self._empty -= 1
            else:
                self._on_due(item)
        self._arm()

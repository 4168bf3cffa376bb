"""The runtime's queue of container events: bounded, kept for the next subscriber."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from kubeletpy.remote.generated import api_pb2 as cri

SIZE = 1000
NONSENSE = -6795364578871345152
"""Go's zero time in nanoseconds, as it overflows."""


class EventQueue:
    """First in, first out; each event has one taker."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._queue: deque[cri.ContainerEventResponse] = deque(maxlen=SIZE)
        self._woken = asyncio.Event()
        self.lose = 0.0
        """Share of the events that get lost."""
        self.breaks = 0
        """How often the stream has broken."""

    def put(self, event: cri.ContainerEventResponse) -> None:
        """Queue an event; a DELETED one may carry nonsense, or no pod at all."""
        if event.container_event_type == cri.CONTAINER_DELETED_EVENT:
            if self._rng.random() < 0.5:
                event.created_at = NONSENSE
            if self._rng.random() < 0.3:
                event.ClearField("pod_sandbox_status")
                del event.containers_statuses[:]
        if self._rng.random() < self.lose:
            return
        self._queue.append(event)
        self._woken.set()

    def clear(self) -> None:
        """Drop all queued events, as a runtime that restarts does."""
        self._queue.clear()

    def break_stream(self) -> None:
        """Cut off whoever listens."""
        self.breaks += 1
        self._woken.set()

    async def take(self) -> cri.ContainerEventResponse | None:
        """The next event; None when the stream breaks."""
        breaks = self.breaks
        while not self._queue and self.breaks == breaks:
            self._woken.clear()
            await self._woken.wait()
        return self._queue.popleft() if self.breaks == breaks else None

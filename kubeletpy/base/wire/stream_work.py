"""Bounds the work that all streams together do in one turn of the event loop.

Whoever carries a stream (WebSocket, SPDY, port-forward, relay, watch) reports each frame that it
has handled. After SLICE_WORK it needs another slice. All streams of a loop together get
SLICES_A_TURN in a turn, first come, first served: neither a stream of tiny frames nor a thousand
streams keep a health check waiting. Must never delay a stream while slices are left.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable

SLICE_WORK = 100
"""A frame is 1, and each 4 KiB of it 1 more: about 10 µs of CPU time. A slice takes about 1 ms."""
SLICES_A_TURN = 4
"""For all streams of an event loop together."""
_BYTES_SHIFT = 12


class TimeSlices:
    """The slices of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = SLICES_A_TURN
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn_ends = False

    def take_slice(self) -> bool:
        """Take a slice of this turn; False: none is left, or others have waited for longer."""
        if self._waiting or self._left <= 0:
            return False
        self._left -= 1
        self._await_end()
        return True

    def when_next(self, run: Callable[[], None]) -> None:
        """Call ``run`` in a later turn, with a slice of that turn taken."""
        self._waiting.append(run)
        self._await_end()

    def _await_end(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_ends = False
        self._left = SLICES_A_TURN
        while self._waiting and self._left > 0:
            self._left -= 1
            self._waiting.popleft()()
        if self._waiting or self._left < SLICES_A_TURN:
            self._await_end()


class StreamWork:
    """The work of one stream within its slice. Create it on the loop that runs the stream."""

    def __init__(self) -> None:
        self._slices = slices_of(asyncio.get_running_loop())
        self._done = 0

    def exceeds(self, size: int) -> bool:
        """Report a frame of ``size`` bytes; returns whether the stream has to wait now.

        Whoever gets True calls :meth:`resume_later` (or awaits :meth:`next_slice`).
        """
        self._done += 1 + (size >> _BYTES_SHIFT)
        while self._done >= SLICE_WORK:
            self._done -= SLICE_WORK
            if not self._slices.take_slice():
                return True
        return False

    def resume_later(self, run: Callable[[], None]) -> None:
        """Call ``run`` once the stream has a slice."""
        self._slices.when_next(run)

    async def next_slice(self) -> None:
        """Wait for a slice."""
        got = asyncio.get_running_loop().create_future()
        self._slices.when_next(lambda: None if got.done() else got.set_result(None))
        await got

    async def did(self, size: int) -> None:
        """Report a frame of ``size`` bytes, and wait where the slice is used up."""
        if self.exceeds(size):
            await self.next_slice()


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, TimeSlices] = (
    weakref.WeakKeyDictionary()
)


def slices_of(loop: asyncio.AbstractEventLoop) -> TimeSlices:
    """The slices that all streams of a loop share."""
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = TimeSlices(loop)
    return found

"""How many probes run at once: a queue that no probe can block for long.

A command costs the machine a process, a connection costs little: each has its own limit. A slot is
released after HOLD_S even while its probe still runs: a probe that takes so long is waiting, not
working. So hanging probes delay others by that much, not by their timeouts. Each probe runs at most
once at a time, which bounds all of them together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

HOLD_S = 1.0


class ProbeSlots:
    """Slots for runs, granted in order of request."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: deque[Callable[[], bool]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait for a slot."""
        return len(self._waiting)

    def start_when_free(self, start: Callable[[], bool]) -> None:
        """Call ``start`` as soon as a slot is free; it returns whether it took it."""
        self._waiting.append(start)
        self._next()

    def acquire(self) -> Callable[[], None]:
        """For the one started: call what is returned to release the slot, once or repeatedly."""
        loop = asyncio.get_running_loop()
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                timer.cancel()
                self._free += 1
                self._next()

        timer = loop.call_later(HOLD_S, release)
        return release

    def _next(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            if not self._waiting.popleft()():
                self._free += 1

"""The two kinds of time: the wall clock, and the monotonic clock of the running event loop.

The wall clock may step in either direction. It is only for what other programs write or read
(timestamps in objects, certificates, tokens) and for what outlives the agent. Elapsed time within
one life of the agent, and the order of what it observed, use the event loop's clock.

Apart, because nothing else in the project may read a clock: simulations replace these.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from kubeletpy.base.structs import Component


class Clock(Protocol):
    """The time of day."""

    def now(self) -> float:
        """Unix time in seconds."""


class SystemClock:
    """The wall clock of this machine."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()


class SteadyClock(Component):
    """The wall time of the first call, plus the time elapsed since: it never steps.

    For ages within one life of the agent. ``offset`` converts to the wall clock of now.
    """

    wall: Clock

    def __post_init__(self) -> None:
        self._epoch: float | None = None
        self._first = 0.0

    def now(self) -> float:
        """Unix seconds by the wall clock of the first call."""
        if self._epoch is None:
            self._first = self.wall.now()
            self._epoch = self._first - steady_now()
        return self._epoch + steady_now()

    def offset(self) -> float:
        """Seconds by which the wall clock has been set ahead since the first call."""
        return self.wall.now() - self.now()

    def beginning(self) -> float:
        """The first call in Unix seconds, as the wall clock is set now; whole seconds.

        Comparable with times that others wrote since the wall clock was set.
        """
        offset = self.offset()
        return round(self._first + offset)


def steady_now() -> float:
    """Seconds of the running event loop's clock, which never steps; comparable within one life.

    Raises:
        RuntimeError: no event loop runs in this thread.
    """
    return asyncio.get_running_loop().time()


def steady_ns() -> int:
    """Nanoseconds of the running event loop's clock."""
    return int(asyncio.get_running_loop().time() * 1e9)

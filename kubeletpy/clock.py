"""The two kinds of time: the wall clock, and the monotonic clock of the running event loop.

The wall clock may step in either direction. It is only for what other programs write or read
(timestamps in objects, certificates, tokens) and for what outlives the agent. Elapsed time within
one life of the agent, and the order of what it observed, use the event loop's clock.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The time of day."""

    def now(self) -> float:
        """Unix time in seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Unix time in seconds."""
        return time.time()


def steady_now() -> float:
    """Seconds of the running event loop's clock, which never steps; comparable within one life.

    Raises:
        RuntimeError: no event loop runs in this thread.
    """
    return asyncio.get_running_loop().time()


def steady_ns() -> int:
    """Nanoseconds of the running event loop's clock."""
    return int(asyncio.get_running_loop().time() * 1e9)

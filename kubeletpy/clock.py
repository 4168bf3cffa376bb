"""Wall time as a dependency: what reads the time of day asks a Clock, so tests can own the time.

Waiting is not a Clock's business: it goes through the running event loop.
"""

from __future__ import annotations

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

"""Wall time as a dependency: code that needs the time of day asks a Clock, so tests control time.

Waiting is not a Clock's job: it goes through the running event loop.
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

"""Resident memory of this process, and the part that many peers leave behind."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.garbage import no_collections

MI = 1 << 20


def resident() -> int:
    """Resident bytes, after the C library has returned its free pages to the system."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def left_by(
    peers: Callable[[int], Awaitable[object]], many: int, *, before: int = 200
) -> int:
    """Bytes that ``many`` peers leave behind without the help of the garbage collector.

    ``peers`` has so many peers come and go; ``before`` of them fill caches and free lists first.
    """
    with no_collections():
        await peers(before)
        began = resident()
        await peers(many)
        return resident() - began

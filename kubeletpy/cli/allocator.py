"""How much freed memory the C library keeps for this process: little, and not for long.

A burst of pods, a long list from the runtime or a large annotation leaves freed blocks in the
arenas of all threads involved, and they stay there. Only a process of our own is set up like this,
never a program that uses an agent as a library.
"""

from __future__ import annotations

import asyncio
import ctypes
import os

ARENAS = 2
"""Threads hold Python's lock while they allocate: an arena for each would help nobody."""
LARGE = 1 << 20
"""Size in bytes from which a block returns to the system as soon as it is free.

glibc begins with 128 KiB, and raises it up to 32 MiB as large blocks are freed. A fixed 128 KiB
made work with such blocks slower, 2.7 times at worst, because the kernel has to clear them each
time.
"""
ENDS = 2 << 20
"""Bytes of free memory that an arena's end may have; glibc's is twice what LARGE has become."""
GIVEN_BACK_EVERY_S = 30.0
"""Free pages between used ones stay until they are trimmed: after a burst of
500 pods 4 of 125 MB. It takes 2 ms, in a thread; 13 with 30 MB to give."""
_OPTIONS = {
    "MALLOC_ARENA_MAX": (-8, ARENAS),
    "MALLOC_MMAP_THRESHOLD_": (-3, LARGE),
    "MALLOC_TRIM_THRESHOLD_": (-1, ENDS),
}
"""Variable of the environment that has precedence -> option of glibc's <malloc.h>, value."""


def keep_little_freed_memory() -> None:
    """Call it before any thread is started. Other C libraries than glibc have no such options."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (option, value) in _OPTIONS.items():
        if variable not in os.environ:
            mallopt(option, value)


async def give_back_freed_memory(every: float = GIVEN_BACK_EVERY_S) -> None:
    """Give free pages back to the system, each ``every`` seconds, until cancelled."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(every)
        await asyncio.to_thread(trim, 0)

"""Who keeps a volume from being unmounted, for people: asked when an unmount was refused as busy.

The agent's own unmounts and those of plugins and drivers fail with their own words, so what is
asked here is whether the words say that it is busy. Loaded with the first refusal; one look at a
time, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

from kubeletpy.volumes.disk import as_in_table
from kubeletpy.volumes.holders import holders, told

_BUSY = re.compile(r"\bbusy\b|\bEBUSY\b|\bin use\b|\bstill mounted\b", re.I)
READ = 4096
"""Characters of a refusal that are looked at."""
_LOOKS = ThreadPoolExecutor(1, "who-holds-a-mount")


def says_busy(words: str) -> bool:
    """Whether a refusal says that the volume is in use: as libc, umount(8) and drivers word it.

    One that does not mean it costs a look at /proc and adds nothing.
    """
    return _BUSY.search(words[-READ:]) is not None


async def held_by(words: str, path: str) -> str:
    """The processes, as the end of a sentence; empty: it is not busy, or nobody was found.

    Args:
        words: of the refusal.
        path: the mount point.
    """
    if not (path and says_busy(words)):
        return ""
    return await asyncio.get_running_loop().run_in_executor(_LOOKS, _look, path)


def _look(path: str) -> str:
    return told(holders(as_in_table(path)))

"""Who keeps a volume from being unmounted, for people: asked when an unmount was refused as busy.

The agent's own unmounts and those of plugins and drivers fail with their own words, so what is
asked here is whether the words say that it is busy. Loaded with the first refusal; one look at a
time, in a thread of its own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from kubeletpy.volumes.busy import says_busy
from kubeletpy.volumes.disk import as_in_table
from kubeletpy.volumes.holders import holders, told

_LOOKS = ThreadPoolExecutor(1, "who-holds-a-mount")


async def held_by(words: str, path: str) -> str:
    """The processes, as the end of a sentence; empty: it is not busy, or nobody was found.

    Words that do not mean it cost a look at /proc, and nothing is added.

    Args:
        words: of the refusal.
        path: the mount point.
    """
    if not (path and says_busy(words)):
        return ""
    return await asyncio.get_running_loop().run_in_executor(_LOOKS, _look, path)


def _look(path: str) -> str:
    return told(holders(as_in_table(path)))

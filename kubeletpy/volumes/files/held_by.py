"""Who keeps a volume from being unmounted, for people: asked when an unmount was refused as busy.

The agent's own unmounts and those of plugins and drivers fail with their own words, so what is
asked here is whether the words say that it is busy. Loaded with the first refusal; one look at a
time, in a thread of its own.
"""

from __future__ import annotations

from kubeletpy.host.exhausted import NoThread
from kubeletpy.host.patient_threads import PatientThreads
from kubeletpy.volumes.files.busy import says_busy
from kubeletpy.volumes.files.disk import as_in_table
from kubeletpy.volumes.files.holders import holders, told

_LOOKS = PatientThreads(1)


async def held_by(words: str, path: str) -> str:
    """The processes, as the end of a sentence; empty: it is not busy, or nobody could be found.

    Words that do not mean it cost a look at /proc, and nothing is added.

    Args:
        words: of the refusal.
        path: the mount point.
    """
    if not (path and says_busy(words)):
        return ""
    try:
        return await _LOOKS.run(_look, path)
    except NoThread:
        return ""


def _look(path: str) -> str:
    return told(holders(as_in_table(path)))

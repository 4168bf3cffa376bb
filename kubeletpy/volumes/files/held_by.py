"""Names the processes that keep a volume from being unmounted, after an unmount failed as busy.

The agent, plugins and drivers word their errors differently, so this module only checks whether a
text mentions that the volume is busy. Loaded with the first failure; one scan of /proc at a time,
in a thread of its own.
"""

from __future__ import annotations

from kubeletpy.base.host.errors import NoThread
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.volumes.files.busy import mentions_busy
from kubeletpy.volumes.files.disk import as_in_table
from kubeletpy.volumes.files.holders import holders, holders_text

_SCANS = PatientThreads(1)


async def held_by(words: str, path: str) -> str:
    """The processes that hold a mount, as the end of a sentence; empty: not busy, or none found.

    A text that mentions "busy" for another reason costs one scan of /proc, and adds nothing.

    Args:
        words: the error text.
        path: the mount point.
    """
    if not (path and mentions_busy(words)):
        return ""
    try:
        return await _SCANS.run(_scan_holders, path)
    except NoThread:
        return ""


def _scan_holders(path: str) -> str:
    return holders_text(holders(as_in_table(path)))

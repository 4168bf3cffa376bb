"""Which old log files are removed and which compressed when a log is rotated. Pure.

Names: the log ``{n}.log``, its rotations ``{n}.log.{time}`` and, compressed, ``{n}.log.{time}.gz``.
Source: docs/reference/behaviour.md, t1; docs/reference/constants.csv: logs; KEP-589.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from kubeletpy.base.structs import Struct

COMPRESSED = ".gz"
UNFINISHED = ".tmp"
_FORMAT = "%Y%m%d-%H%M%S"


class RotationPlan(Struct, frozen=True):
    """Names of the files to remove, then of those to compress."""

    remove: tuple[str, ...]
    compress: tuple[str, ...]


def plan_rotation(log: str, names: Iterable[str], max_files: int) -> RotationPlan:
    """Plan the removals and compressions before the renaming of ``log``.

    At most ``max_files`` (at least 2) remain after it.

    The newest rotation is left alone: the runtime may still write to it, and readers follow it.
    """
    ours = sorted(name for name in names if name.startswith(f"{log}."))
    finished = {name for name in ours if name.endswith(COMPRESSED)}
    remove = [name for name in ours if name.endswith(UNFINISHED)]
    kept = []
    for name in ours:
        if name in remove:
            continue
        if name + COMPRESSED in finished:
            remove.append(name)
        else:
            kept.append(name)
    # the log itself and the rotation to come are two of the files
    excess = max(len(kept) - (max_files - 2), 0)
    remove += kept[:excess]
    rest = kept[excess:]
    return RotationPlan(tuple(remove), tuple(name for name in rest if name not in finished))


def rotated_name(log: str, now: float) -> str:
    """The name of a rotation made at a time (Unix seconds): names sort by time."""
    return f"{log}.{datetime.fromtimestamp(now, UTC).strftime(_FORMAT)}"

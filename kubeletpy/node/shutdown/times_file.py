"""The file that keeps when the last shutdown of the machine began and ended, over the boot.

Written as the machine goes down: whole or not at all. Its name, its keys and that metrics show its
times after the boot are the kubelet's (docs/reference/behaviour.md, q).
"""

from __future__ import annotations

import json
from pathlib import Path

from kubeletpy.base.api.times import format_micro_time, parse_time
from kubeletpy.base.host.files import write_private

NAME = "graceful_node_shutdown_state"
_KEYS = {"start": "startTime", "end": "endTime"}


def write(directory: Path, times: dict[str, float]) -> None:
    """Replace the file.

    ``times``: "start" and, when it is over, "end" (Unix seconds). Raises OSError.
    """
    stored = {_KEYS[what]: format_micro_time(at) for what, at in times.items()}
    write_private(directory / NAME, json.dumps(stored))


def read_times(directory: Path) -> dict[str, float]:
    """The times that :func:`write` stored; empty without a file.

    Raises OSError, and ValueError for a file that is no such record.
    """
    try:
        stored = json.loads((directory / NAME).read_bytes())
    except FileNotFoundError:
        return {}
    if not isinstance(stored, dict):
        raise ValueError("it is no object")
    return {what: at for what, key in _KEYS.items() if (at := _seconds(stored.get(key))) > 0}


def _seconds(stored: object) -> float:
    if stored is None:  # the kubelet's value for a time that has not come; or it is the year 1
        return 0.0
    if not isinstance(stored, str):
        raise ValueError(f"a time is no string: {stored!r:.80}")
    return parse_time(stored)

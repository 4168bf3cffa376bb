"""The record of a graceful shutdown over the boot: its times, and the pods that it ended.

The file and its two times are the kubelet's, which ignores our third key; each version of it is
written completely or not at all. It is a module of its own because a kubelet reads the format, too.
Source: docs/reference/behaviour.md, q.
"""

from __future__ import annotations

import json
from pathlib import Path

from kubeletpy.base.api.times import format_micro_time, parse_time
from kubeletpy.base.host.files import write_private
from kubeletpy.base.structs import Struct, field

NAME = "graceful_node_shutdown_state"
MOST_PODS = 500
"""Pods in the file; the oldest are dropped first."""


class ShutdownRecord(Struct, frozen=True):
    """The last shutdown; times are Unix seconds, 0: it has not come to that."""

    start: float = 0.0
    end: float = 0.0
    ended: dict[str, float] = field(default_factory=dict)
    """Pods (uid) that a start could take for completed ones, and when their end was requested."""


def write_record(directory: Path, record: ShutdownRecord) -> None:
    """Replace the file. Raises OSError."""
    stored: dict[str, object] = {"startTime": format_micro_time(record.start)}
    if record.end:
        stored["endTime"] = format_micro_time(record.end)
    if record.ended:
        newest = list(record.ended.items())[-MOST_PODS:]
        stored["pods"] = {uid: format_micro_time(at) for uid, at in newest}
    write_private(directory / NAME, json.dumps(stored))


def read_record(directory: Path) -> ShutdownRecord:
    """The record that :func:`write_record` stored; an empty one without a file.

    Raises OSError, and ValueError for a file that is no such record.
    """
    try:
        stored = json.loads((directory / NAME).read_bytes())
    except FileNotFoundError:
        return ShutdownRecord()
    if not isinstance(stored, dict):
        raise ValueError("it is no object")
    pods = stored.get("pods", {})
    if not isinstance(pods, dict):
        raise ValueError("pods is no object")
    return ShutdownRecord(
        _seconds(stored.get("startTime")),
        _seconds(stored.get("endTime")),
        {uid: _seconds(at) for uid, at in list(pods.items())[-MOST_PODS:]},
    )


def _seconds(stored: object) -> float:
    if stored is None:  # the kubelet's value for a time that has not come; or it is the year 1
        return 0.0
    if not isinstance(stored, str):
        raise ValueError(f"a time is no string: {stored!r:.80}")
    return max(0.0, parse_time(stored))

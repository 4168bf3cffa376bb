"""Which events a change of node conditions is worth. Pure.

Source: docs/reference/events.csv: NodeReady, NodeNotReady, NodeHasSufficientMemory, Rebooted.
"""

from __future__ import annotations

from kubeletpy.api import types as api

REASONS = {
    ("MemoryPressure", "True"): "NodeHasInsufficientMemory",
    ("MemoryPressure", "False"): "NodeHasSufficientMemory",
    ("DiskPressure", "True"): "NodeHasDiskPressure",
    ("DiskPressure", "False"): "NodeHasNoDiskPressure",
    ("PIDPressure", "True"): "NodeHasInsufficientPID",
    ("PIDPressure", "False"): "NodeHasSufficientPID",
    ("Ready", "True"): "NodeReady",
    ("Ready", "False"): "NodeNotReady",
}


def condition_events(old: api.NodeStatus, new: api.NodeStatus) -> list[str]:
    """Event reasons for conditions whose status is not what it was."""
    before = {entry["type"]: entry.get("status") for entry in old.get("conditions") or ()}
    reasons = []
    for entry in new.get("conditions") or ():
        kind, status = entry["type"], entry.get("status", "")
        if before.get(kind) != status and (kind, status) in REASONS:
            reasons.append(REASONS[kind, status])
    return reasons

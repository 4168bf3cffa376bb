"""Which events to emit for a change of node conditions. Pure.

Source: docs/reference/events.csv: NodeReady, NodeNotReady, NodeHasSufficientMemory, Rebooted.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import Reason

REASONS = {
    ("MemoryPressure", "True"): Reason.NODE_HAS_INSUFFICIENT_MEMORY,
    ("MemoryPressure", "False"): Reason.NODE_HAS_SUFFICIENT_MEMORY,
    ("DiskPressure", "True"): Reason.NODE_HAS_DISK_PRESSURE,
    ("DiskPressure", "False"): Reason.NODE_HAS_NO_DISK_PRESSURE,
    ("PIDPressure", "True"): Reason.NODE_HAS_INSUFFICIENT_PID,
    ("PIDPressure", "False"): Reason.NODE_HAS_SUFFICIENT_PID,
    ("Ready", "True"): Reason.NODE_READY,
    ("Ready", "False"): Reason.NODE_NOT_READY,
}


def condition_events(old: api.NodeStatus, new: api.NodeStatus) -> list[Reason]:
    """Event reasons for conditions whose status has changed.

    That a new node is not Ready yet is no change, as in the kubelet.
    """
    before = {entry["type"]: entry.get("status") for entry in old.get("conditions") or ()}
    reasons = []
    for entry in new.get("conditions") or ():
        kind, status = entry["type"], entry.get("status", "")
        if before.get(kind) == status or (kind, status) not in REASONS:
            continue
        if kind == "Ready" and kind not in before and status == "False":
            continue
        reasons.append(REASONS[kind, status])
    return reasons

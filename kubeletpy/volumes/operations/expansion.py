"""Decides whether a volume is expanded on this node, and makes its claim's status. Pure.

Source: docs/reference/behaviour-storage.md, so2, so3.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import VolumeSpec
from kubeletpy.volumes.operations.plan import claimed_size, pv_size

NOT_REQUIRED = "volume.kubernetes.io/node-expansion-not-required"
_ENDED = ("Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError")


class Flow(StrEnum):
    """The action to take for a claim."""

    LEGACY = "legacy"
    """Expand, then report it in the claim; nobody tracks the resize."""
    RECOVERY = "recovery"
    """Expand, with the states of recovery from expansion failure."""
    EXPAND_ONLY = "expand only"
    """Expand, and leave the claim unchanged: another node has reported it already."""
    NOTHING = "nothing"
    """It is done."""
    WAIT = "wait"
    """Not this node's turn."""


def flow(spec: VolumeSpec) -> tuple[Flow, int]:
    """The action for a claim that shows less than its volume should have, and the size in bytes."""
    claim = spec.claim or {}
    status = claim.get("status") or {}
    states, sizes = status.get("allocatedResourceStatuses"), status.get("allocatedResources")
    if not states and not sizes:
        return Flow.LEGACY, pv_size(spec)
    size = pv_size(spec)
    if (allocated := (sizes or {}).get("storage")) is not None:
        size = pv_size(_with_capacity(spec, allocated))
    state = (states or {}).get("storage") or ""
    if not state and claimed_size(spec) >= size:
        notes = (claim.get("metadata") or {}).get("annotations") or {}
        if "ReadWriteMany" in spec.access_modes and NOT_REQUIRED not in notes:
            return Flow.EXPAND_ONLY, size
        return Flow.NOTHING, size
    if state in ("NodeResizePending", "NodeResizeInProgress"):
        return Flow.RECOVERY, size
    return Flow.WAIT, size


def _with_capacity(spec: VolumeSpec, size: str) -> VolumeSpec:
    return replace(spec, pv={"spec": {"capacity": {"storage": size}}})


def in_progress(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The patch for a claim whose file system is about to grow."""
    return {
        "metadata": {"resourceVersion": claim["metadata"].get("resourceVersion")},
        "status": {"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}},
    }


def finished(claim: Mapping[str, Any], size: str) -> dict[str, Any]:
    """The patch for a claim whose volume has ``size``, a quantity."""
    status: dict[str, Any] = {
        "capacity": {"storage": size},
        "conditions": [{"type": kind, "$patch": "delete"} for kind in _ENDED],
    }
    if (claim.get("status") or {}).get("allocatedResourceStatuses"):
        status["allocatedResourceStatuses"] = {"storage": None}
    return {
        "metadata": {"resourceVersion": claim["metadata"].get("resourceVersion")},
        "status": status,
    }


def failed(message: str, now: str, *, infeasible: bool) -> dict[str, Any]:
    """The patch for a claim whose volume could not grow; ``now`` as the API writes times."""
    condition = {
        "type": "NodeResizeError",
        "status": "True",
        "lastTransitionTime": now,
        "message": message,
    }
    status: dict[str, Any] = {"conditions": [condition]}
    if infeasible:
        status["allocatedResourceStatuses"] = {"storage": "NodeResizeInfeasible"}
    return {"status": status}

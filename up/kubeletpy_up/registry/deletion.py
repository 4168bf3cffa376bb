"""Effect of a delete on an object: decided here, carried out by the registry.

Pure. The rules are the API server's. A pod that is bound and not finished is deleted gracefully:
its node removes it with grace period 0. Finalizers keep any object until the list is empty.
"""

from __future__ import annotations

from kubeletpy.base.api.times import format_time, parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.kinds.meta import FOREGROUND, ORPHAN, with_metadata
from kubeletpy_up.requests import DeleteOptions

_MAX_AHEAD = 2**31 - 1
"""Maximum seconds until a deletionTimestamp. A grace period may be any 64-bit number, but a year
has four digits."""


class Decision(Struct, frozen=True):
    """``remove``: delete the object now. ``object``: its (last) state; if unchanged, no write."""

    remove: bool
    object: JSON


def grace_period(resource: str, obj: JSON, requested: int | None) -> int:
    """Seconds that a deletion waits for the node; 0 means that there is nobody to wait for."""
    if resource != "pods":
        return 0
    spec: JSON = obj.get("spec") or {}
    if not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in TERMINAL_PHASES:
        return 0
    grace = requested
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", 30)
    if isinstance(grace, bool) or not isinstance(grace, int):
        return 30
    return grace if grace >= 0 else 1


def decide(resource: str, obj: JSON, options: DeleteOptions, now: float) -> Decision:
    """Decide on the deletion of a stored object. ``now`` in Unix seconds."""
    grace = grace_period(resource, obj, options.grace_period_seconds)
    finalizers = finalizers_for(obj, options.propagation)
    if obj["metadata"].get("deletionTimestamp"):
        if resource != "pods" and finalizers != (obj["metadata"].get("finalizers") or []):
            return Decision(not finalizers, with_metadata(obj, finalizers=finalizers or None))
        return _again(obj, options, grace)
    if finalizers != (obj["metadata"].get("finalizers") or []):
        obj = with_metadata(obj, finalizers=finalizers or None)
    if grace == 0:
        if not finalizers:
            return Decision(True, _marked(obj, now, 0) if resource == "pods" else obj)
        return Decision(False, _marked(obj, now, 0))
    return Decision(False, _marked(obj, now + min(grace, _MAX_AHEAD), grace))


def finalizers_for(obj: JSON, propagation: str) -> list[str]:
    """The finalizers with which an object is deleted.

    The finalizers of garbage collection define what becomes of its dependents, so the requested
    policy replaces them.
    """
    known: list[str] = obj["metadata"].get("finalizers") or []
    if not propagation:
        return known
    desired = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(propagation)
    kept = [each for each in known if each not in (ORPHAN, FOREGROUND) or each == desired]
    return [*kept, desired] if desired and desired not in kept else kept


def _marked(obj: JSON, when: float, grace: int) -> JSON:
    generation = obj["metadata"].get("generation")
    return with_metadata(
        obj,
        deletionTimestamp=format_time(when),
        deletionGracePeriodSeconds=grace,
        generation=generation + 1 if generation else None,
    )


def _again(obj: JSON, options: DeleteOptions, grace: int) -> Decision:
    meta = obj["metadata"]
    current = meta.get("deletionGracePeriodSeconds") or 0
    unasked = options.grace_period_seconds is None and grace != 0
    if unasked or grace >= current > 0:
        return Decision(False, obj)
    if grace == 0 and not meta.get("finalizers"):
        return Decision(True, with_metadata(obj, deletionGracePeriodSeconds=0))
    if current <= grace:
        return Decision(False, obj)
    due = parse_time(meta["deletionTimestamp"]) - min(current, _MAX_AHEAD) + min(grace, _MAX_AHEAD)
    shorter = with_metadata(
        obj, deletionTimestamp=format_time(due), deletionGracePeriodSeconds=grace
    )
    return Decision(False, shorter)


def finished(obj: JSON) -> bool:
    """Whether an update has removed the last thing that kept a deleted object."""
    meta = obj["metadata"]
    return (
        bool(meta.get("deletionTimestamp"))
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )

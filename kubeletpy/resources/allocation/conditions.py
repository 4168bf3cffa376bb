"""The two conditions that report a resize: PodResizePending and PodResizeInProgress.

Pure: each function makes the next condition from the previous one; time is an argument (Unix
seconds). The transition time changes when the reason does. Source: docs/reference/reasons.csv:
PodResizePending, PodResizeInProgress; docs/reference/behaviour.md, e3; KEP-1287.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import Struct

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"
DEFERRED = "Deferred"
INFEASIBLE = "Infeasible"
ERROR = "Error"


class ResizeConditions(Struct, frozen=True):
    """The resize conditions of one pod; None for one that does not hold."""

    pending: api.PodCondition | None = None
    in_progress: api.PodCondition | None = None

    def listed(self) -> list[api.PodCondition]:
        """The conditions in the order of a pod status."""
        return [each for each in (self.pending, self.in_progress) if each is not None]

    @property
    def deferred(self) -> bool:
        """Whether a resize is waiting for room."""
        return self.pending is not None and self.pending.get("reason") == DEFERRED


NONE = ResizeConditions()


def from_status(conditions: Iterable[api.PodCondition] | None) -> ResizeConditions:
    """The resize conditions that the API shows."""
    pending = in_progress = None
    for condition in conditions or ():
        if condition.get("type") == PENDING:
            pending = condition
        elif condition.get("type") == IN_PROGRESS:
            in_progress = condition
    return ResizeConditions(pending, in_progress)


def pending(
    before: api.PodCondition | None, reason: str, message: str, generation: int, *, now: float
) -> tuple[api.PodCondition, bool]:
    """The condition of a resize that is not allocated, and whether to report it (again)."""
    made = _condition(PENDING, before, reason, message, generation, now=now)
    changes = before is None or (
        before.get("reason") != reason or (before.get("observedGeneration") or 0) != generation
    )
    return made, changes


def in_progress(
    before: api.PodCondition | None, reason: str, message: str, generation: int, *, now: float
) -> tuple[api.PodCondition, bool]:
    """The condition of a resize that is allocated and not done, and whether it is news.

    A condition that already holds keeps its generation, and its reason unless a new one is given.
    """
    if before is not None:
        generation = before.get("observedGeneration") or 0
        if not reason and not message:
            reason, message = before.get("reason") or "", before.get("message") or ""
        if (before.get("reason") or "", before.get("message") or "") == (reason, message):
            return before, False
    return _condition(IN_PROGRESS, before, reason, message, generation, now=now), True


def _condition(
    kind: str,
    before: api.PodCondition | None,
    reason: str,
    message: str,
    generation: int,
    *,
    now: float,
) -> api.PodCondition:
    moved = format_time(now)
    if before is not None and (before.get("reason") or "") == reason:
        moved = before.get("lastTransitionTime") or moved
    made: api.PodCondition = {
        "type": kind,
        "status": "True",
        "lastProbeTime": format_time(now),
        "lastTransitionTime": moved,
    }
    if generation:
        made["observedGeneration"] = generation
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    return made

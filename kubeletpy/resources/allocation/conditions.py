"""The conditions and event messages that report a resize. Pure.

Each function of a condition makes the next one from the previous one; time is an argument (Unix
seconds). The transition time changes when the reason does. Source: docs/reference/reasons.csv:
PodResizePending, PodResizeInProgress; docs/reference/behaviour.md, e3; docs/reference/events.csv:
ResizeStarted, ResizeCompleted, ResizeError, ResizeDeferred, ResizeInfeasible; KEP-1287.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod

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
    """Return the resize conditions that the API shows."""
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
    """Return the condition of a resize that is not allocated, and whether to report it (again)."""
    made = _condition(PENDING, before, reason, message, generation, now=now)
    changes = before is None or (
        before.get("reason") != reason or (before.get("observedGeneration") or 0) != generation
    )
    return made, changes


def in_progress(
    before: api.PodCondition | None, reason: str, message: str, generation: int, *, now: float
) -> tuple[api.PodCondition, bool]:
    """Return the condition of an allocated resize that is not done, and whether to report it.

    A condition that already holds keeps its generation, and its reason unless a new one is passed.
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


# The messages of events.

STARTED = "Pod resize started"
COMPLETED = "Pod resize completed"
FAILED = "Pod resize error"


def resize_message(text: str, pod: Pod, generation: int, error: str = "") -> str:
    """Return an event's message: ``text`` and a JSON summary of what the pod requests.

    ``resources`` beside the containers are those of the pod itself.
    """
    summary: dict[str, Any] = {}
    if pod.init_containers:
        summary["initContainers"] = _listed(pod.init_containers)
    summary["containers"] = _listed(pod.containers)
    if own := _resources(pod.spec):
        summary["resources"] = own
    summary["generation"] = generation
    if error:
        summary["error"] = error
    return f"{text}: {json.dumps(summary, separators=(',', ':'), ensure_ascii=False)}"


def _listed(containers: Sequence[api.Container]) -> list[dict[str, Any]]:
    return [
        {"name": container["name"], "resources": _resources(container)} for container in containers
    ]


def _resources(container: api.Container | api.PodSpec) -> dict[str, Any]:
    resources = container.get("resources") or {}
    reported: dict[str, Any] = {}
    for kind in ("limits", "requests"):
        amounts: dict[str, str] = resources.get(kind) or {}  # type: ignore[assignment]
        if amounts:
            reported[kind] = {name: amounts[name] for name in sorted(amounts)}
    if resources.get("claims"):
        reported["claims"] = resources["claims"]
    return reported

"""The condition that shows others that the node, not the pod, is why a pod ended. Pure.

Source: KEP-3329 (DisruptionTarget).
"""

from __future__ import annotations

from kubeletpy.api import types as api
from kubeletpy.api.times import format_time

DISRUPTION_TARGET = "DisruptionTarget"
"""Set by the agent for preemption and shutdown, and by others too: shared."""


def with_disruption(
    status: api.PodStatus, message: str, now: float, generation: int = 0
) -> list[api.PodCondition]:
    """The conditions of a status and this one. ``now`` in Unix seconds; generation 0: not known."""
    condition: api.PodCondition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": message,
        "lastTransitionTime": format_time(now),
    }
    if generation:
        condition["observedGeneration"] = generation
    kept = [c for c in status.get("conditions") or () if c.get("type") != DISRUPTION_TARGET]
    return [*kept, condition]

"""The condition that shows that a pod ended because of the node, not on its own. Pure.

Source: KEP-3329 (DisruptionTarget).
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time

DISRUPTION_TARGET = "DisruptionTarget"
"""Set by the agent for preemption and shutdown, but also by others: shared."""


def with_disruption(
    status: api.PodStatus, message: str, now: float, generation: int = 0
) -> list[api.PodCondition]:
    """A status's conditions plus this one. ``now`` is in Unix seconds; generation 0: unknown."""
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

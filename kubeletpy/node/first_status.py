"""Whether the first status of a node that the API shows as Ready waits for answers. Pure.

An agent that has just started has no answer yet about its runtime, nor about the readiness for
volumes. A status written before that would show the node as not Ready although it has been Ready
all the time. An event would follow, and a second later another status and event. The kubelet writes
both.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.node.build import is_ready
from kubeletpy.node.conditions import RUNTIME_DOWN_AFTER_S, NodeHealth


class FirstStatus(Struct, frozen=True):
    """Whether to wait before the first status.

    Attributes:
        wait: seconds to wait at most, until something is known; 0: write it.
        why: for people.
    """

    wait: float
    why: str


def first_status(
    shown: api.NodeStatus, health: NodeHealth, waited: float, period: float
) -> FirstStatus:
    """Decide.

    It waits for one period at most: after that, the API's status would be older than it is at any
    other time. It never waits longer than a runtime may be silent.

    Args:
        shown: what the API has.
        health: the content of a status written now.
        waited: seconds since the node was registered.
        period: nodeStatusUpdateFrequency, in seconds.

    Source: docs/reference/behaviour.md, o2, o4.
    """
    if not is_ready(shown):
        return FirstStatus(0.0, "the API does not show the node as Ready")
    known = [problem for problem in health.problems() if problem not in health.unanswered]
    if known:
        return FirstStatus(0.0, f"known: {known[0]}")
    if not health.unanswered:
        return FirstStatus(0.0, "everything has answered")
    left = min(period, RUNTIME_DOWN_AFTER_S) - waited
    if left <= 0:
        return FirstStatus(0.0, f"waited for {waited:.1f} s: {health.unanswered[0]}")
    return FirstStatus(left, f"not answered yet: {health.unanswered[0]}")

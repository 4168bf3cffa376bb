"""The conditions of a node. Pure: time is an argument.

Source: docs/reference/reasons.csv: node-condition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import Struct

RUNTIME_DOWN_AFTER_S = 30.0
"""Without a good answer for this long, the runtime is considered down."""


class NodeHealth(Struct, frozen=True):
    """The problems that decide whether the node is Ready."""

    runtime_error: str = ""
    """Why the runtime is not usable; empty when it is fine."""
    network_error: str = ""
    pleg_error: str = ""
    storage_error: str = ""
    shutting_down: bool = False
    missing_capacity: Sequence[str] = ()
    pressures: Collection[str] = ()
    """Pressure conditions that are true; they do not keep the node from being Ready."""
    unanswered: Sequence[str] = ()
    """The problems that only mean that nobody has answered yet."""
    cgroup_error: str = ""
    """Why pods can't be limited: the runtime uses another cgroup driver."""

    def problems(self) -> list[str]:
        """Everything that keeps the node from being Ready."""
        found = [
            text
            for text in (
                self.runtime_error,
                self.network_error,
                self.storage_error,
                self.pleg_error,
                self.cgroup_error,
            )
            if text
        ]
        if self.missing_capacity:
            names = ", ".join(self.missing_capacity)
            found.append(f"missing node capacity for resources: {names}")
        if self.shutting_down:
            found.append("node is shutting down")
        return found


def network_not_ready(message: str) -> str:
    """How a runtime without a network is described."""
    return f"container runtime network not ready: {message}"


def _condition(
    kind: str,
    status: bool,
    reason: str,
    message: str,
    *,
    before: api.NodeCondition | None,
    now: float,
) -> api.NodeCondition:
    text = "True" if status else "False"
    same = before is not None and before.get("status") == text
    return {
        "type": kind,
        "status": text,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": (
            before["lastTransitionTime"]
            if same and before is not None and "lastTransitionTime" in before
            else format_time(now)
        ),
        "reason": reason,
        "message": message,
    }


PRESSURES = {
    ("MemoryPressure", True): (
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
    ),
    ("MemoryPressure", False): (
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", True): ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ("DiskPressure", False): ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", True): ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ("PIDPressure", False): ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


def node_conditions(
    old: Iterable[api.NodeCondition], health: NodeHealth, now: float
) -> list[api.NodeCondition]:
    """The conditions set by others, followed by the node's own.

    Args:
        old: the conditions shown before; those set by others are kept.
        now: Unix seconds.
    """
    before = {condition["type"]: condition for condition in old}
    made = [
        _condition(kind, held, reason, message, before=before.get(kind), now=now)
        for (kind, held), (reason, message) in PRESSURES.items()
        if held is (kind in health.pressures)
    ]
    problems = health.problems()
    reason, message = "KubeletReady", "kubelet is posting ready status"
    if problems:
        reason = "KubeletNotReady"
        message = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    before_ready = before.get("Ready")
    made.append(_condition("Ready", not problems, reason, message, before=before_ready, now=now))
    own = {condition["type"] for condition in made}
    return [condition for kind, condition in before.items() if kind not in own] + made

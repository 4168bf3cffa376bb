"""The pod conditions that a node agent owns (docs/reference/reasons.csv: pod-condition).

Pure. Transition times are set where a status is stored, not here: see :mod:`.store`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kubeletpy.api import types as api
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod, is_sidecar

RESTARTING_ALL = "AllContainersRestarting"

OWNED = frozenset(
    {
        "PodScheduled",
        "Ready",
        "Initialized",
        "ContainersReady",
        "PodResizeInProgress",
        "PodResizePending",
        "PodReadyToStartContainers",
        RESTARTING_ALL,
    }
)
"""Condition types that only the agent sets; all others are kept as the API has them."""

RESIZE = frozenset({"PodResizeInProgress", "PodResizePending"})
"""Owned conditions that the resize code maintains, with their transition times."""

NOT_LOOKED_AFTER = frozenset({RESTARTING_ALL})
"""Owned conditions that carry no observedGeneration."""


def find(conditions: Iterable[api.PodCondition] | None, kind: str) -> api.PodCondition | None:
    """The condition with that type."""
    for condition in conditions or ():
        if condition.get("type") == kind:
            return condition
    return None


def is_ready(status: api.PodStatus) -> bool:
    """Whether a pod's condition Ready is True."""
    found = find(status.get("conditions"), "Ready")
    return found is not None and found.get("status") == "True"


def condition(
    kind: str, status: bool, reason: str = "", message: str = "", *, generation: int = 0
) -> api.PodCondition:
    """A condition without its times."""
    made: api.PodCondition = {"type": kind, "status": "True" if status else "False"}
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    if generation and kind not in NOT_LOOKED_AFTER:
        made["observedGeneration"] = generation
    return made


def _names(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def _sort_containers(
    containers: Iterable[api.Container],
    statuses: Mapping[str, api.ContainerStatus],
    field: str,
) -> tuple[list[str], list[str]]:
    """Names without a status, and names whose ``field`` is not true."""
    unknown, lacking = [], []
    for container in containers:
        status = statuses.get(container["name"])
        if status is None:
            unknown.append(container["name"])
        elif not status.get("ready" if field == "ready" else "started"):
            lacking.append(container["name"])
    return unknown, lacking


def containers_ready(
    pod: Pod, statuses: Mapping[str, api.ContainerStatus], phase: str
) -> api.PodCondition:
    """ContainersReady: all sidecars and regular containers are ready."""
    kind, generation = "ContainersReady", pod.generation
    if not statuses:
        return condition(kind, False, "UnknownContainerStatuses", generation=generation)
    sidecars = [c for c in pod.init_containers if is_sidecar(c)]
    unknown, unready = _sort_containers([*sidecars, *pod.containers], statuses, "ready")
    if phase == "Succeeded" and not unknown:
        return condition(kind, False, "PodCompleted", generation=generation)
    if phase == "Failed":
        return condition(kind, False, "PodFailed", generation=generation)
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: {_names(unknown)}")
    if unready:
        parts.append(f"containers with unready status: {_names(unready)}")
    if parts:
        return condition(kind, False, "ContainersNotReady", ", ".join(parts), generation=generation)
    return condition(kind, True, generation=generation)


def ready(
    pod: Pod, all_ready: api.PodCondition, others: Sequence[api.PodCondition]
) -> api.PodCondition:
    """Ready: ContainersReady and every readiness gate (looked up among ``others``)."""
    if all_ready["status"] != "True":
        return {**all_ready, "type": "Ready"}
    parts = []
    for gate in pod.spec.get("readinessGates") or ():
        wanted = gate.get("conditionType", "")
        found = find(others, wanted)
        if found is None:
            parts.append(
                f'corresponding condition of pod readiness gate "{wanted}" does not exist.'
            )
        elif found.get("status") != "True":
            parts.append(
                f'the status of pod readiness gate "{wanted}" is not "True", '
                f"but {found.get('status')}"
            )
    if parts:
        return condition(
            "Ready", False, "ReadinessGatesNotReady", ", ".join(parts), generation=pod.generation
        )
    return condition("Ready", True, generation=pod.generation)


def _init_lacking(
    pod: Pod, statuses: Mapping[str, api.ContainerStatus]
) -> tuple[list[str], list[str]]:
    unknown: list[str] = []
    incomplete: list[str] = []
    for container in pod.init_containers:
        field = "started" if is_sidecar(container) else "ready"
        missing, lacking = _sort_containers([container], statuses, field)
        unknown += missing
        incomplete += lacking
    return unknown, incomplete


def initialized(
    pod: Pod,
    statuses: Mapping[str, api.ContainerStatus],
    phase: str,
    old: Iterable[api.PodCondition],
) -> api.PodCondition:
    """Initialized: every init container is done (a sidecar: started), or was before."""
    kind, generation = "Initialized", pod.generation
    if not statuses and pod.init_containers:
        return condition(kind, False, "UnknownContainerStatuses", generation=generation)
    unknown, incomplete = _init_lacking(pod, statuses)
    if phase == "Succeeded" and not unknown:
        return condition(kind, True, "PodCompleted", generation=generation)
    if not unknown and not incomplete:
        return condition(kind, True, generation=generation)
    regular_started = any(_has_run(statuses.get(c["name"])) for c in pod.containers)
    before = find(old, kind)
    if regular_started or (before is not None and before.get("status") == "True"):
        # once initialized, always initialized: sidecars, restarted init containers don't undo it
        return condition(kind, True, generation=generation)
    parts = []
    if unknown:
        parts.append(f"containers with unknown status: {_names(unknown)}")
    if incomplete:
        parts.append(f"containers with incomplete status: {_names(incomplete)}")
    return condition(
        kind, False, "ContainersNotInitialized", ", ".join(parts), generation=generation
    )


def _has_run(status: api.ContainerStatus | None) -> bool:
    if status is None:
        return False
    state = status.get("state") or {}
    last = status.get("lastState") or {}
    return "running" in state or "terminated" in state or "terminated" in last


def all_containers_restarting(active: bool, phase: str) -> api.PodCondition:
    """AllContainersRestarting, for pods that have such a rule."""
    kind = RESTARTING_ALL
    if phase in TERMINAL_PHASES:
        return condition(kind, False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
    if active:
        return condition(
            kind,
            True,
            "RestartAllContainersStarted",
            "a container exited with a rule that restarts all containers of the pod",
        )
    return condition(kind, False)

"""The conditions of a pod that a node agent owns, and its phase.

Pure. Source: docs/reference/reasons.csv: pod-condition; docs/reference/behaviour.md, e1. Transition
times are set where a status is stored, not here: see :mod:`.store`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod, is_sidecar
from kubeletpy.pods.runtime_status import restart_after_exit

RESTARTING_ALL = "AllContainersRestarting"
NODE_SHUTDOWN = AdmissionReason.NODE_SHUTDOWN.value
"""Why a pod is not Ready while its node shuts down."""

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

NOT_CHECKED_AFTER = frozenset({RESTARTING_ALL})
"""Owned conditions that carry no observedGeneration."""


def find(conditions: Iterable[api.PodCondition] | None, kind: str) -> api.PodCondition | None:
    """The condition with that type."""
    for condition in conditions or ():
        if condition.get("type") == kind:
            return condition
    return None


def holds(conditions: Iterable[api.PodCondition] | None, kind: str) -> bool:
    """Whether the condition with that type is True."""
    found = find(conditions, kind)
    return found is not None and found.get("status") == "True"


def is_ready(status: api.PodStatus | api.NodeStatus) -> bool:
    """Whether the condition Ready of a pod or a node is True."""
    found = status.get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in found)


def condition(
    kind: str, status: bool, reason: str = "", message: str = "", *, generation: int = 0
) -> api.PodCondition:
    """A condition without its times."""
    made: api.PodCondition = {"type": kind, "status": "True" if status else "False"}
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    if generation and kind not in NOT_CHECKED_AFTER:
        made["observedGeneration"] = generation
    return made


def _sort_containers(
    containers: Iterable[api.Container],
    statuses: Mapping[str, api.ContainerStatus],
    by_start: Callable[[api.Container], bool],
) -> tuple[list[str], list[str]]:
    """Names without a status, and names that are not ready, or not started if ``by_start``."""
    unknown, lacking = [], []
    for container in containers:
        status = statuses.get(container["name"])
        if status is None:
            unknown.append(container["name"])
        elif not status.get("started" if by_start(container) else "ready"):
            lacking.append(container["name"])
    return unknown, lacking


def _message(**names: Sequence[str]) -> str:
    """Lists containers by the kind of status that they have; empty: there are none."""
    return ", ".join(
        f"containers with {kind} status: [{' '.join(each)}]" for kind, each in names.items() if each
    )


def containers_ready(
    pod: Pod, statuses: Mapping[str, api.ContainerStatus], phase: str
) -> api.PodCondition:
    """ContainersReady: all sidecars and regular containers are ready."""
    made = partial(condition, "ContainersReady", generation=pod.generation)
    if not statuses:
        return made(False, "UnknownContainerStatuses")
    every = [*filter(is_sidecar, pod.init_containers), *pod.containers]
    unknown, unready = _sort_containers(every, statuses, by_start=lambda _: False)
    if phase == "Succeeded" and not unknown:
        return made(False, "PodCompleted")
    if phase == "Failed":
        return made(False, "PodFailed")
    message = _message(unknown=unknown, unready=unready)
    return made(False, "ContainersNotReady", message) if message else made(True)


def ready(
    pod: Pod, all_ready: api.PodCondition, others: Sequence[api.PodCondition]
) -> api.PodCondition:
    """Ready: ContainersReady and every readiness gate (looked up among ``others``)."""
    if all_ready["status"] != "True":
        return {**all_ready, "type": "Ready"}
    parts = []
    for gate in pod.spec.get("readinessGates") or ():
        desired = gate.get("conditionType", "")
        found = find(others, desired)
        if found is None:
            parts.append(
                f'corresponding condition of pod readiness gate "{desired}" does not exist.'
            )
        elif found.get("status") != "True":
            parts.append(
                f'the status of pod readiness gate "{desired}" is not "True", '
                f"but {found.get('status')}"
            )
    made = partial(condition, "Ready", generation=pod.generation)
    return made(False, "ReadinessGatesNotReady", ", ".join(parts)) if parts else made(True)


def leaving(pod: Pod, all_ready: api.PodCondition) -> api.PodCondition:
    """Ready while the node shuts down: Services are to send no more requests."""
    if all_ready["status"] != "True":
        return {**all_ready, "type": "Ready"}
    made = partial(condition, "Ready", generation=pod.generation)
    return made(False, NODE_SHUTDOWN, "node is shutting down")


def revoked(pod: Pod, status: api.PodStatus) -> bool:
    """Whether another client set Ready to False, although containers and gates are ready.

    The node lifecycle controller does so for the pods of a node that it cannot reach.
    """
    reported = status.get("conditions") or []
    all_ready, own = find(reported, "ContainersReady"), find(reported, "Ready")
    if all_ready is None or is_ready(status) or (own or {}).get("reason") == NODE_SHUTDOWN:
        return False
    return ready(pod, all_ready, reported)["status"] == "True"


def initialized(
    pod: Pod,
    statuses: Mapping[str, api.ContainerStatus],
    phase: str,
    old: Iterable[api.PodCondition],
) -> api.PodCondition:
    """Initialized: every init container is done (a sidecar: started), or was before."""
    made = partial(condition, "Initialized", generation=pod.generation)
    if not statuses and pod.init_containers:
        return made(False, "UnknownContainerStatuses")
    unknown, incomplete = _sort_containers(pod.init_containers, statuses, by_start=is_sidecar)
    if phase == "Succeeded" and not unknown:
        return made(True, "PodCompleted")
    if not unknown and not incomplete:
        return made(True)
    regular_started = any(_has_run(statuses.get(c["name"])) for c in pod.containers)
    if regular_started or holds(old, "Initialized"):
        # once initialized, always initialized: sidecars, restarted init containers don't undo it
        return made(True)
    message = _message(unknown=unknown, incomplete=incomplete)
    return made(False, "ContainersNotInitialized", message)


def _has_run(status: api.ContainerStatus | None) -> bool:
    if status is None:
        return False
    state = status.get("state") or {}
    last = status.get("lastState") or {}
    return "running" in state or "terminated" in state or "terminated" in last


def all_containers_restarting(active: bool, phase: str) -> api.PodCondition:
    """AllContainersRestarting, for pods that have such a rule."""
    made = partial(condition, RESTARTING_ALL)
    if phase in TERMINAL_PHASES:
        return made(False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
    if active:
        message = "a container exited with a rule that restarts all containers of the pod"
        return made(True, "RestartAllContainersStarted", message)
    return made(False)


# -- the phase, from container statuses alone ------------------------------------------------

RESTARTING_ALL_REASON = "RestartingAllContainers"


class _Seen(Struct):
    """Which states occur among the containers of a pod."""

    init_failed_for_good: bool = False
    pending: bool = False
    """One that must start before the pod does, or about which nothing is known."""
    sidecar_pending: bool = False
    """A sidecar that is running but has not started yet."""
    running: bool = False
    restartable: bool = False
    """A stopped one that may run again."""
    unsuccessful: bool = False
    """A stopped one that did not succeed."""


def last_exit(status: api.ContainerStatus) -> api.ContainerStateTerminated | None:
    """A container's current termination: its state's, or its last one while it waits."""
    state = status.get("state") or {}
    if "terminated" in state:
        return state["terminated"]
    if "waiting" in state:
        return (status.get("lastState") or {}).get("terminated")
    return None


def _restartable(pod: Pod, container: api.Container, ended: api.ContainerStateTerminated) -> bool:
    if ended.get("reason") == RESTARTING_ALL_REASON:
        return True
    return restart_after_exit(pod.restart_policy, container, ended.get("exitCode") or 0)[0]


def _see_init(pod: Pod, container: api.Container, status: api.ContainerStatus, seen: _Seen) -> None:
    ended = last_exit(status)
    if ended is None:
        seen.pending = True
    elif (ended.get("exitCode") or 0) != 0 and not _restartable(pod, container, ended):
        seen.init_failed_for_good = True


def _see_sidecar(status: api.ContainerStatus, seen: _Seen) -> None:
    if "running" in (status.get("state") or {}):
        seen.running = True
        seen.sidecar_pending |= not status.get("started")
    elif last_exit(status) is None:  # a terminated sidecar does not affect the phase
        seen.pending = True


def _see_regular(
    pod: Pod, container: api.Container, status: api.ContainerStatus, seen: _Seen
) -> None:
    state = status.get("state") or {}
    ended = last_exit(status)
    if "running" in state:
        seen.running = True
    elif ended is None:
        seen.pending = True
    else:
        seen.restartable |= _restartable(pod, container, ended)
        # a waiting container whose last run succeeded is about to run again: it has not succeeded
        seen.unsuccessful |= "terminated" not in state or (ended.get("exitCode") or 0) != 0


def compute_phase(
    pod: Pod,
    statuses: Iterable[api.ContainerStatus],
    *,
    terminated: bool,
    regular_container_in_sandbox: bool,
) -> str:
    """Pending, Running, Succeeded or Failed.

    Args:
        statuses: init and regular container statuses.
        terminated: the pod's worker has stopped everything; nothing will be restarted.
        regular_container_in_sandbox: a regular container has a record in the current sandbox.
    """
    by_name = {status.get("name"): status for status in statuses}
    nothing: api.ContainerStatus = {"name": ""}
    seen = _Seen()
    for container in pod.init_containers:
        status = by_name.get(container["name"], nothing)
        if is_sidecar(container):
            _see_sidecar(status, seen)
        else:
            _see_init(pod, container, status, seen)
    for container in pod.containers:
        _see_regular(pod, container, by_name.get(container["name"], nothing), seen)

    if seen.init_failed_for_good:
        return "Failed"
    if seen.pending or (seen.sidecar_pending and not regular_container_in_sandbox):
        return "Pending"
    if seen.running:
        return "Running"
    all_ended = terminated and not pod.is_static
    if seen.restartable and not all_ended:
        return "Running"
    return "Failed" if seen.unsuccessful else "Succeeded"

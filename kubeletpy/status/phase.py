"""The phase of a pod, from its container statuses alone (docs/reference/behaviour.md, e1).

Pure. Must never look at the runtime or the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubeletpy.api import types as api
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.restart_rules import restart_after_exit

RESTARTING_ALL = "RestartingAllContainers"


@dataclass(slots=True)
class _Counts:
    init_pending: int = 0
    init_failed_for_good: int = 0
    sidecar_pending: int = 0
    unknown: int = 0
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    stopped_for_good: int = 0
    succeeded: int = 0


def last_exit(status: api.ContainerStatus) -> api.ContainerStateTerminated | None:
    """The termination a container stands at: its state's, or its last one while it waits."""
    state = status.get("state") or {}
    if "terminated" in state:
        return state["terminated"]
    if "waiting" in state:
        return (status.get("lastState") or {}).get("terminated")
    return None


def _restartable(pod: Pod, container: api.Container, ended: api.ContainerStateTerminated) -> bool:
    if ended.get("reason") == RESTARTING_ALL:
        return True
    return restart_after_exit(pod.restart_policy, container, ended.get("exitCode") or 0)[0]


def _count_init(
    pod: Pod, container: api.Container, status: api.ContainerStatus | None, counts: _Counts
) -> None:
    ended = last_exit(status) if status is not None else None
    if ended is None:
        counts.init_pending += 1
    elif (ended.get("exitCode") or 0) != 0 and not _restartable(pod, container, ended):
        counts.init_failed_for_good += 1


def _count_sidecar(status: api.ContainerStatus | None, counts: _Counts) -> None:
    if status is None:
        counts.unknown += 1
        return
    state = status.get("state") or {}
    if "running" in state:
        counts.running += 1
        counts.sidecar_pending += not status.get("started")
    elif last_exit(status) is not None:
        pass  # an ended sidecar says nothing about the pod
    elif "waiting" in state:
        counts.waiting += 1
        counts.sidecar_pending += 1
    else:
        counts.unknown += 1
        counts.sidecar_pending += 1


def _count_regular(
    pod: Pod, container: api.Container, status: api.ContainerStatus | None, counts: _Counts
) -> None:
    state = (status or {}).get("state") or {}
    ended = last_exit(status) if status is not None else None
    if "running" in state:
        counts.running += 1
    elif ended is not None:
        counts.stopped += 1
        counts.stopped_for_good += not _restartable(pod, container, ended)
        # a waiting container whose last run ended well is about to run again: it has not succeeded
        counts.succeeded += "terminated" in state and (ended.get("exitCode") or 0) == 0
    elif "waiting" in state:
        counts.waiting += 1
    else:
        counts.unknown += 1


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
    counts = _Counts()
    for container in pod.init_containers:
        status = by_name.get(container["name"])
        if is_sidecar(container):
            _count_sidecar(status, counts)
        else:
            _count_init(pod, container, status, counts)
    for container in pod.containers:
        _count_regular(pod, container, by_name.get(container["name"]), counts)

    if counts.init_failed_for_good:
        return "Failed"
    if counts.init_pending or (counts.sidecar_pending and not regular_container_in_sandbox):
        return "Pending"
    if counts.waiting:
        return "Pending"
    if counts.running and not counts.unknown:
        return "Running"
    if counts.stopped and not counts.running and not counts.unknown:
        all_ended = terminated and not pod.is_static
        if not all_ended and counts.stopped != counts.stopped_for_good:
            return "Running"
        return "Succeeded" if counts.stopped == counts.succeeded else "Failed"
    return "Pending"

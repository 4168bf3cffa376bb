"""The phase of a pod, from its container statuses alone (docs/reference/behaviour.md, e1).

Pure. Must never read the runtime or the clock.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.runtime_status import restart_after_exit

RESTARTING_ALL = "RestartingAllContainers"


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
    if ended.get("reason") == RESTARTING_ALL:
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

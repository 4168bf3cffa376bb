"""Ends of containers that the API's status has and the runtime has no record of. Pure.

The status was written by this node: a container that is terminated in it has run, and ended with
that code. Must never make up an end that nobody saw, nor count an init container that has not run
in the newest sandbox. Source: docs/reference/behaviour.md, c12.
"""

from __future__ import annotations

from collections.abc import Collection

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import replace
from kubeletpy.pods import runtime_status
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.runtime_manager.names import container_hash

CRASH_LOOP = "CrashLoopBackOff"
_LISTS = {
    ContainerKind.REGULAR: "containerStatuses",
    ContainerKind.INIT: "initContainerStatuses",
    ContainerKind.EPHEMERAL: "ephemeralContainerStatuses",
}
_RESTARTING_ALL = "AllContainersRestarting"
_Entries = dict[tuple[ContainerKind, str], api.ContainerStatus]


def with_reported_ends(
    pod: Pod, status: runtime_status.PodRuntimeStatus, reported: api.PodStatus | None
) -> runtime_status.PodRuntimeStatus:
    """Return the runtime's status of a pod, with the API's ends in place of absent records.

    ``reported`` is the status that the API has or is about to get, or None if not known.
    """
    if reported is None:
        return status
    recorded = {record.name for record in status.containers}
    absent = [each for each in pod.all_containers() if each[1]["name"] not in recorded]
    if not absent:
        return status
    entries = _by_name(reported)
    if _restarts_all(pod, recorded, reported, entries):
        return status
    ran_here = _before_the_last_in_its_sandbox(pod, status)
    ends = [
        end
        for kind, container in absent
        if (kind is not ContainerKind.INIT or container["name"] in ran_here)
        and (entry := entries.get((kind, container["name"]))) is not None
        and (end := _end(container, entry)) is not None
    ]
    return replace(status, containers=(*status.containers, *ends)) if ends else status


def _before_the_last_in_its_sandbox(pod: Pod, status: runtime_status.PodRuntimeStatus) -> set[str]:
    """Init containers before the last container that has a record in the newest sandbox.

    They have run in that sandbox, as a later one starts after them. Nothing else proves it: the
    times of the API's status and of the sandbox are those of a clock that may have been set since.
    """
    if not status.sandboxes:
        return set()
    newest = status.sandboxes[0].id
    here = {record.name for record in status.containers if record.sandbox_id in ("", newest)}
    names = [container["name"] for container in pod.init_containers]
    if any(container["name"] in here for container in pod.containers):
        return set(names)
    last = max((index for index, name in enumerate(names) if name in here), default=0)
    return set(names[:last])


def _restarts_all(
    pod: Pod, recorded: Collection[str], reported: api.PodStatus, entries: _Entries
) -> bool:
    """Whether records may be absent because all containers are to restart.

    That is also so where how a container ended is not known that can cause such a restart.
    """
    if not runtime_status.could_restart_all(pod):
        return False
    conditions = reported.get("conditions") or ()
    if any(c["type"] == _RESTARTING_ALL and c["status"] == "True" for c in conditions):
        return True
    return any(
        runtime_status.triggers_restart_all(container, ended.get("exitCode") or 0)
        if (ended := (entry.get("state") or {}).get("terminated")) is not None
        else runtime_status.causes_restart_all(container) and container["name"] not in recorded
        for kind, container in pod.all_containers()
        if (entry := entries.get((kind, container["name"]))) is not None
    )


def _end(
    container: api.Container, entry: api.ContainerStatus
) -> runtime_status.ContainerStatus | None:
    ended = _termination(entry)
    # a status that was lost has no id: how the container ended is not known
    container_id = (ended or {}).get("containerID", "").partition("://")[2]
    if ended is None or not container_id:
        return None
    try:
        started = parse_time(ended.get("startedAt") or "")
        finished = parse_time(ended.get("finishedAt") or "")
    except (ValueError, TypeError):
        return None
    restarts = max(0, entry.get("restartCount") or 0)
    return runtime_status.ContainerStatus(
        id=container_id,
        name=container["name"],
        state=runtime_status.ContainerState.EXITED,
        created_at=int(started * 1e9),
        started_at=int(started * 1e9),
        finished_at=int(finished * 1e9),
        exit_code=ended.get("exitCode") or 0,
        reason=ended.get("reason") or "",
        hash=container_hash(container),
        restart_count=restarts,
        attempt=restarts,
    )


def _termination(entry: api.ContainerStatus) -> api.ContainerStateTerminated | None:
    """The end of the newest run: of a container that waits for its restart, the last state."""
    state = entry.get("state") or {}
    if (state.get("waiting") or {}).get("reason") == CRASH_LOOP:
        return (entry.get("lastState") or {}).get("terminated")
    return state.get("terminated")


def _by_name(reported: api.PodStatus) -> _Entries:
    """The entries of a status; the first of a name counts."""
    found: _Entries = {}
    for kind, field in _LISTS.items():
        for entry in reported.get(field) or ():  # type: ignore[attr-defined]
            found.setdefault((kind, entry.get("name") or ""), entry)
    return found

"""Container statuses as kubectl shows them, from runtime records and the previous status.

Pure; the rows are those of docs/reference/behaviour.md, e4. Containers that the runtime has lost
are reported as lost (exit code 137, ContainerStatusUnknown), never as success.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, spelled, value
from kubeletpy.base.api.times import format_nanoseconds, format_time
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import TERMINAL_PHASES, ContainerKind, Pod, is_sidecar
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    StartError,
    reported_reason,
    should_container_be_restarted,
)
from kubeletpy.status.conditions import RESTARTING_ALL_REASON

# -- resources -------------------------------------------------------------------------------

MIN_MILLI_LIMIT = 10
"""Millicores below which the kernel does not distinguish cpu limits."""
MIN_MILLI_REQUEST = 2
"""The minimum of cpu.shares is 2."""


def _milli_limit(record: ContainerStatus) -> int | None:
    resources = record.resources
    if resources is None or resources.cpu_quota is None or resources.cpu_quota <= 0:
        return None
    return resources.cpu_quota * 1000 // resources.cpu_period if resources.cpu_period else None


def _milli_request(record: ContainerStatus) -> int | None:
    shares = record.resources.cpu_shares if record.resources is not None else None
    return -(-shares * 1000 // 1024) if shares and shares >= 2 else None


def _cpu(requested: str, actual: int | None, least: int) -> str:
    if actual is None:
        return requested
    desired = milli_value(requested)
    # shares round: 100m is 102 shares is 99.6m; the same setting, so the same text
    if abs(desired - actual) <= 1 or (desired <= least and actual <= least):
        return requested
    return f"{actual}m" if actual % 1000 else str(actual // 1000)


def reported_resources(
    container: api.Container,
    record: ContainerStatus,
    old: api.ContainerStatus | None,
    container_id: str,
    actuated: api.ResourceRequirements | None = None,
) -> api.ResourceRequirements:
    """``status.resources`` of one container: what the runtime enforces, over the spec's.

    A copy, never the spec's own object. A value that equals the spec's has the spec's format
    ("1Gi", not bytes). ``actuated`` is what was last applied to the container: no runtime reports a
    memory request, and some report nothing. Unreported values stay as previously shown for the same
    container.
    """
    spec = container.get("resources") or {}
    if not record.running:
        return {**spec}
    if record.resources is None and actuated is None:
        same = old is not None and old.get("containerID") == container_id
        return (same and old is not None and old.get("resources")) or {**spec}
    limits = dict(spec.get("limits") or {})
    requests = dict(spec.get("requests") or {})
    applied_limits = (actuated or {}).get("limits") or {}
    applied_requests = (actuated or {}).get("requests") or {}
    if record.resources is None:
        limits |= {name: applied_limits[name] for name in limits if name in applied_limits}
        requests |= {name: applied_requests[name] for name in requests if name in applied_requests}
    else:
        if "cpu" in limits:
            limits["cpu"] = _cpu(limits["cpu"], _milli_limit(record), MIN_MILLI_LIMIT)
        if "cpu" in requests:
            requests["cpu"] = _cpu(requests["cpu"], _milli_request(record), MIN_MILLI_REQUEST)
        memory = record.resources.memory_limit_bytes
        if "memory" in limits and memory and memory != value(limits["memory"]):
            limits["memory"] = _spelled_as(memory, applied_limits.get("memory"))
        if "memory" in requests and "memory" in applied_requests:
            requests["memory"] = applied_requests["memory"]
    reported: api.ResourceRequirements = {**spec}
    if limits:
        reported["limits"] = limits
    if requests:
        reported["requests"] = requests
    return reported


def _spelled_as(amount: int, applied: str | None) -> str:
    if applied is not None and value(applied) == amount:
        return applied
    return spelled(amount, binary=True)


# -- states ----------------------------------------------------------------------------------

LOST_EXIT_CODE = 137
LOST_REASON = "ContainerStatusUnknown"
LOST_MESSAGE = "The runtime no longer has the container's record; how it ended is not known"
WAS_RUNNING_MESSAGE = (
    "The container was running, but the runtime no longer has its record; how it ended is not known"
)
INIT_DONE_MESSAGE = (
    "Unable to get init container status: the runtime no longer has its record, but the pod went "
    "on after it"
)
"""People and the node conformance suite search for the first words."""
RESTART_ALL_MESSAGE = "The container was removed to restart all containers of the pod"


class ContainerStatusInputs(Struct, frozen=True):
    """The input for the statuses of one list of containers."""

    pod: Pod
    runtime: PodRuntimeStatus
    runtime_name: str
    start_errors: Mapping[str, StartError] = field(default_factory=dict)
    restarting_all: bool = False
    """The pod is restarting all of its containers."""
    recursive_read_only: bool = False
    """The pod's runtime handler can mount read-only recursively."""
    actuated: Mapping[str, api.ResourceRequirements] = field(default_factory=dict)
    """The resources that containers were last given, by name."""
    now: float = 0.0
    """Unix seconds; the end of a container that is found to be absent."""


def lost(
    state: api.ContainerState, now: float, message: str = LOST_MESSAGE, reason: str = LOST_REASON
) -> api.ContainerStateTerminated:
    """The termination of a container when its end was not recorded.

    ``state`` is its last reported state, ``now`` when it was found to be absent (Unix seconds).
    Both times are set if it ran: the API shows omitted times as the year 1.
    """
    ended: api.ContainerStateTerminated = {
        "exitCode": LOST_EXIT_CODE,
        "reason": reason,
        "message": message,
    }
    if started_at := (state.get("running") or {}).get("startedAt"):
        ended["startedAt"] = started_at
        ended["finishedAt"] = format_time(now)
    return ended


def container_statuses(
    inputs: ContainerStatusInputs,
    kind: ContainerKind,
    containers: Sequence[api.Container],
    old: Iterable[api.ContainerStatus],
) -> list[api.ContainerStatus]:
    """The statuses of one kind of container; init containers in spec order, others by name."""
    before = {status.get("name", ""): status for status in old}
    statuses = []
    for container in containers:
        status = _one(inputs, kind, container, before.get(container["name"]))
        statuses.append(_waiting_for_start(inputs, kind, container, status))
    if kind is not ContainerKind.INIT:
        statuses.sort(key=lambda status: status["name"])
    return statuses


def _one(
    inputs: ContainerStatusInputs,
    kind: ContainerKind,
    container: api.Container,
    old: api.ContainerStatus | None,
) -> api.ContainerStatus:
    name = container["name"]
    records = [record for record in inputs.runtime.containers if record.name == name]
    if not records:
        return _without_record(inputs, kind, container, old)
    status = _from_record(inputs, container, records[0], old)
    # one that never started has no state to show once another one follows it
    earlier = (each for each in records[1:] if each.state is not ContainerState.CREATED)
    if (last := next(earlier, None)) is not None:
        status["lastState"] = _state(inputs, container, last, None)
    return status


def _without_record(
    inputs: ContainerStatusInputs,
    kind: ContainerKind,
    container: api.Container,
    old: api.ContainerStatus | None,
) -> api.ContainerStatus:
    old_state = (old or {}).get("state") or {}
    if old is not None and "terminated" in old_state and not inputs.restarting_all:
        return {**old}
    status = _default(inputs, container, old)
    if inputs.restarting_all and old is not None and "waiting" not in old_state:
        status["state"] = {
            "waiting": {"reason": RESTARTING_ALL_REASON, "message": RESTART_ALL_MESSAGE}
        }
        # for some, how they ended before removal is known: that helps to find out why
        ended = old_state.get("terminated") or lost(
            old_state, inputs.now, RESTART_ALL_MESSAGE, RESTARTING_ALL_REASON
        )
        status["lastState"] = {"terminated": ended}
        status["restartCount"] = (old.get("restartCount") or 0) + 1
        return status
    if "running" in old_state and not status.get("lastState"):
        # a lost container that ran is shown as terminated, or the pod would fall back to Pending
        status["lastState"] = {"terminated": lost(old_state, inputs.now, WAS_RUNNING_MESSAGE)}
        if not inputs.pod.being_deleted:
            status["restartCount"] = (status.get("restartCount") or 0) + 1
    if kind is ContainerKind.INIT and not is_sidecar(container) and _regular_created(inputs):
        status["state"] = {
            "terminated": {"exitCode": 0, "reason": "Completed", "message": INIT_DONE_MESSAGE}
        }
    return status


def _default(
    inputs: ContainerStatusInputs, container: api.Container, old: api.ContainerStatus | None
) -> api.ContainerStatus:
    reason = "PodInitializing" if inputs.pod.init_containers else "ContainerCreating"
    status: api.ContainerStatus = {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": "",
        "ready": False,
        "restartCount": (old or {}).get("restartCount") or 0,
        "state": {"waiting": {"reason": reason}},
        "lastState": (old or {}).get("lastState") or {},
    }
    return _with_mounts(inputs, container, status)


def _with_mounts(
    inputs: ContainerStatusInputs, container: api.Container, status: api.ContainerStatus
) -> api.ContainerStatus:
    mounts: list[api.VolumeMountStatus] = [
        _read_only_mount(inputs, mount)
        if mount.get("readOnly")
        else {"name": mount.get("name", ""), "mountPath": mount.get("mountPath", "")}
        for mount in container.get("volumeMounts") or ()
    ]
    if mounts:
        status["volumeMounts"] = mounts
    return status


def _read_only_mount(
    inputs: ContainerStatusInputs, mount: api.VolumeMount
) -> api.VolumeMountStatus:
    desired = mount.get("recursiveReadOnly") in ("Enabled", "IfPossible")
    return {
        "name": mount.get("name", ""),
        "mountPath": mount.get("mountPath", ""),
        "readOnly": True,
        "recursiveReadOnly": "Enabled" if desired and inputs.recursive_read_only else "Disabled",
    }


def _from_record(
    inputs: ContainerStatusInputs,
    container: api.Container,
    record: ContainerStatus,
    old: api.ContainerStatus | None,
) -> api.ContainerStatus:
    container_id = f"{inputs.runtime_name}://{record.id}"
    old_state = (old or {}).get("state") or {}
    old_count = (old or {}).get("restartCount") or 0
    status: api.ContainerStatus = {
        "name": record.name,
        "image": record.image,
        "imageID": record.image_ref,
        "containerID": container_id,
        "ready": False,
        "restartCount": max(record.restart_count, old_count),
        "state": _state(inputs, container, record, old),
        "lastState": (old or {}).get("lastState") or {},
        "allocatedResources": (container.get("resources") or {}).get("requests") or {},
        "resources": reported_resources(
            container, record, old, container_id, inputs.actuated.get(container["name"])
        ),
    }
    if not status["allocatedResources"]:
        del status["allocatedResources"]
    same = (old or {}).get("containerID") == container_id
    if not same and "terminated" in old_state:
        status["lastState"] = {"terminated": old_state["terminated"]}
    if (
        "waiting" in old_state
        and old_count > record.restart_count
        and _ends_with(status["lastState"], container_id)
        and should_container_be_restarted(inputs.pod, container, inputs.runtime)[0]
    ):
        # the attempt after this end is counted, never ran, and its record was removed: if the end
        # were shown again, the next attempt would be counted twice
        status["state"] = {"waiting": old_state["waiting"]}
    if record.running and "terminated" in old_state and old_count >= record.restart_count:
        status["restartCount"] = old_count if same else old_count + 1
    if record.running and old is not None and same:
        status["started"], status["ready"] = bool(old.get("started")), bool(old.get("ready"))
    if record.state is ContainerState.UNKNOWN and "running" in old_state:
        status["restartCount"] = old_count + 1
    if record.user is not None:
        status["user"] = {
            "linux": {
                "uid": record.user.uid,
                "gid": record.user.gid,
                "supplementalGroups": list(record.user.supplemental_groups),
            }
        }
    return _with_mounts(inputs, container, status)


def _ends_with(state: api.ContainerState, container_id: str) -> bool:
    """Whether a last state is the end of this container."""
    return (state.get("terminated") or {}).get("containerID") == container_id


def _state(
    inputs: ContainerStatusInputs,
    container: api.Container,
    record: ContainerStatus,
    old: api.ContainerStatus | None,
) -> api.ContainerState:
    if record.state is ContainerState.RUNNING:
        return {"running": _times(startedAt=record.started_at or record.created_at)}
    if record.state is ContainerState.EXITED:
        ended: api.ContainerStateTerminated = {
            "exitCode": record.exit_code,
            "reason": record.reason,
            "containerID": f"{inputs.runtime_name}://{record.id}",
        }
        ended |= _times(
            startedAt=record.started_at or record.created_at,
            finishedAt=record.finished_at or record.started_at or record.created_at,
        )
        if record.message:
            ran = record.started_at > 0
            ended["message"] = record.message if ran else reported_reason(record.message, container)
        return {"terminated": ended}
    old_state = (old or {}).get("state") or {}
    was_running = "running" in old_state
    if record.state is ContainerState.UNKNOWN and was_running:
        if inputs.restarting_all:
            return {
                "terminated": lost(
                    old_state, inputs.now, RESTART_ALL_MESSAGE, RESTARTING_ALL_REASON
                )
            }
        return {"terminated": lost(old_state, inputs.now)}
    return {"waiting": {}}


def _times(**nanoseconds: int) -> Any:
    """Times of the runtime for the API, without those that are 0: not known."""
    return {name: format_nanoseconds(at) for name, at in nanoseconds.items() if at > 0}


def _regular_created(inputs: ContainerStatusInputs) -> bool:
    names = {container["name"] for container in inputs.pod.containers}
    return any(record.name in names for record in inputs.runtime.containers)


def _waiting_for_start(
    inputs: ContainerStatusInputs,
    kind: ContainerKind,
    container: api.Container,
    status: api.ContainerStatus,
) -> api.ContainerStatus:
    """The waiting state, with its reason, of a container whose start failed or is held back."""
    error = inputs.start_errors.get(container["name"])
    if error is None:
        return status
    record = inputs.runtime.newest(container["name"])
    if kind is ContainerKind.INIT and not is_sidecar(container):
        done = record is not None and record.state is ContainerState.EXITED
        if (done and record is not None and record.exit_code == 0) or (
            record is None and _regular_created(inputs)
        ):
            return status
    if not should_container_be_restarted(inputs.pod, container, inputs.runtime)[0]:
        return status
    state = status.get("state") or {}
    waiting: api.ContainerStatus = {
        **status,
        "state": {"waiting": {"reason": error.code, "message": error.message}},
    }
    if "terminated" in state:
        waiting["lastState"] = {"terminated": state["terminated"]}
    return waiting


# -- the last status (docs/reference/behaviour.md, f4) ---------------------------------------


def finished_status(pod: Pod, status: api.PodStatus, now: float) -> api.PodStatus:
    """The status with every container terminated and, for all but static pods, a terminal phase.

    ``now`` in Unix seconds.
    """
    done: api.PodStatus = {**status}
    regular = status.get("containerStatuses") or []
    if regular and _has_initialized(pod, status):
        done["containerStatuses"] = [_ended(entry, now) for entry in regular]
    entries = status.get("initContainerStatuses") or []
    if entries:
        begun = _begun(entries)
        done["initContainerStatuses"] = [
            _ended(entry, now) if index < begun else entry for index, entry in enumerate(entries)
        ]
    if not pod.is_static and done.get("phase") not in TERMINAL_PHASES:
        done["phase"] = "Failed"
    return done


def completed_status(last: api.PodStatus, composed: api.PodStatus) -> api.PodStatus:
    """The last status of a pod with the containers that ran and that only the composed one has.

    Nothing but ephemeral containers can be added to a pod.
    """
    known = last.get("ephemeralContainerStatuses") or []
    names = {entry["name"] for entry in known}
    added = [
        entry
        for entry in composed.get("ephemeralContainerStatuses") or ()
        if entry["name"] not in names and "containerID" in entry
    ]
    if not added:
        return last
    every = sorted([*known, *added], key=lambda entry: entry["name"])
    return {**last, "ephemeralContainerStatuses": every}


def _ended(entry: api.ContainerStatus, now: float) -> api.ContainerStatus:
    state = entry.get("state") or {}
    if "terminated" in state:
        return entry
    last = entry.get("lastState") or {}
    if _ends_with(last, entry.get("containerID") or ""):  # it waited for a restart
        return {**entry, "state": last, "ready": False, "started": False}
    return {**entry, "state": {"terminated": lost(state, now)}, "ready": False, "started": False}


def _begun(entries: list[api.ContainerStatus]) -> int:
    """How many init containers show signs of having been started; at least one."""
    return max((n for n, entry in enumerate(entries, start=1) if _was_started(entry)), default=1)


def _was_started(entry: api.ContainerStatus) -> bool:
    return "waiting" not in (entry.get("state") or {}) or bool(
        (entry.get("lastState") or {}).get("terminated")
    )


def _has_initialized(pod: Pod, status: api.PodStatus) -> bool:
    if not pod.init_containers:
        return True
    if any(map(_was_started, status.get("containerStatuses") or ())):
        return True
    inits = status.get("initContainerStatuses") or []
    if not inits:
        return False
    last, spec = inits[-1], pod.init_containers[-1]
    state = last.get("state") or {}
    if is_sidecar(spec):
        return "running" in state and bool(last.get("started"))
    ends = (state.get("terminated"), (last.get("lastState") or {}).get("terminated"))
    return any(ended is not None and ended.get("exitCode") == 0 for ended in ends)

"""The last status of a pod: settles whatever is still open when its worker is done.

Pure (docs/reference/behaviour.md, f4). A container whose end nobody saw is reported as lost, never
as success.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod, is_sidecar
from kubeletpy.status.container_status import lost


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


def _ended(entry: api.ContainerStatus, now: float) -> api.ContainerStatus:
    state = entry.get("state") or {}
    if "terminated" in state:
        return entry
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

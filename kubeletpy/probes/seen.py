"""Derives the inputs of probes about each container from a pod and its API status. Pure."""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import restart_after_exit, triggers_restart_all
from kubeletpy.probes.schedule import RESTART_SLACK_S, ProbedContainer


def container_state(
    pod: Pod,
    container: api.Container,
    status: api.PodStatus,
    *,
    now: float,
    agent_started_at: float,
) -> ProbedContainer:
    """A container's state by the status. ``now`` and ``agent_started_at`` in Unix seconds."""
    phase = status.get("phase") or ""
    known = _find(status, container["name"])
    container_id = (known or {}).get("containerID", "").partition("://")[2]
    if known is None or not container_id:
        return ProbedContainer(phase)
    state = known.get("state") or {}
    running_for, survivor, ended = None, False, state.get("terminated")
    if "running" in state:
        started_at = state["running"].get("startedAt")
        since = parse_time(started_at) if started_at else now
        running_for = max(0.0, now - since)
        survivor = since < agent_started_at - RESTART_SLACK_S
    return ProbedContainer(
        phase=phase,
        container_id=container_id,
        running_for=running_for,
        survivor=survivor,
        started=bool(known.get("started")),
        ready=bool(known.get("ready")),
        may_run_again=ended is None
        or restart_after_exit(pod.restart_policy, container, ended.get("exitCode", 0))[0]
        or _restarts_all(pod, status),
        deleting=pod.being_deleted,
    )


def _find(status: api.PodStatus, name: str) -> api.ContainerStatus | None:
    for entries in (status.get("containerStatuses"), status.get("initContainerStatuses")):
        for entry in entries or ():
            if entry.get("name") == name:
                return entry
    return None


def _restarts_all(pod: Pod, status: api.PodStatus) -> bool:
    """Whether some container's exit causes all of them to restart."""
    for container in (*pod.init_containers, *pod.containers):
        state = (_find(status, container["name"]) or {}).get("state") or {}
        ended = state.get("terminated")
        if ended is not None and triggers_restart_all(container, ended.get("exitCode", 0)):
            return True
    return False

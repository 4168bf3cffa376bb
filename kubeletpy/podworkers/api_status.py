"""Makes the API status of a pod out of what the rooms know, and has it kept and written.

Gathers inputs only; what the status says is decided by :mod:`kubeletpy.status.generate`.
"""

from __future__ import annotations

from kubeletpy.api import types as api
from kubeletpy.api.times import parse_time
from kubeletpy.events.recorder import NORMAL, pod_reference
from kubeletpy.pods.pod import CONFIG_SEEN, Pod
from kubeletpy.pods.restart_rules import restart_all_active
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.pods.sandbox_changed import decide_sandbox
from kubeletpy.podworkers.protocol import StatusOverride
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.status.generate import (
    DEADLINE_MESSAGE,
    DEADLINE_REASON,
    TERMINAL,
    StatusInputs,
    generate_api_pod_status,
)
from kubeletpy.status.generate import deadline as pod_deadline


def _handler(status: PodRuntimeStatus) -> str:
    """The runtime handler that the newest sandbox was made with."""
    return status.sandboxes[0].runtime_handler if status.sandboxes else ""


class StatusWriter:
    """Generates and stores the API status of pods."""

    def __init__(self, services: SyncServices) -> None:
        self._services = services

    def store(
        self,
        pod: Pod,
        mirror: Pod | None,
        status: PodRuntimeStatus,
        *,
        terminated: bool = False,
        override: StatusOverride | None = None,
    ) -> bool:
        """Generate and store; whether the phase is terminal.

        A terminal phase is held back from the API only while a container runs.
        """
        services = self._services
        if terminated:
            services.resizes.ended(pod.uid)
        services.looked_at(pod, status)
        kept = services.statuses.get_status(pod.uid)
        shown = mirror if mirror is not None and pod.is_shown_by(mirror) else pod
        old = kept if kept is not None else shown.status
        new = generate_api_pod_status(
            StatusInputs(
                pod=pod,
                runtime=status,
                runtime_name=services.runtime.runtime_name,
                old=old,
                now=services.clock.now(),
                sandbox_usable=not decide_sandbox(pod, status).create,
                restarting_all=restart_all_active(pod, status),
                recursive_read_only=_handler(status) in services.recursive_read_only,
                host_ips=services.host_ips(),
                # whose end has come waits for no start: its last exit is the truth about it
                start_errors={} if terminated else services.reasons.get(pod.uid),
                probes=services.probes.results(pod),
                terminated=terminated,
                agent_started_at=services.agent_started_at,
                resize_conditions=services.resizes.conditions(pod.uid),
                actuated=self._actuated(pod),
                actuated_pod=services.actuated.get_pod_level(pod.uid),
            )
        )
        if override is not None:
            new = override(new)
        self._notice(pod, old, new)
        may_run = not terminated and bool(status.running_containers)
        services.statuses.set_status(pod, new, containers_may_run=may_run)
        services.probes.status_stored(pod, new)
        return new.get("phase") in TERMINAL

    def _actuated(self, pod: Pod) -> dict[str, api.ResourceRequirements]:
        found = {}
        for container in (*pod.init_containers, *pod.containers):
            name = container["name"]
            if (given := self._services.actuated.get(pod.uid, name)) is not None:
                found[name] = given
        return found

    def deadline(self, pod: Pod) -> float | None:
        """Unix seconds at which activeDeadlineSeconds ends the pod; None without one."""
        kept = self._services.statuses.get_status(pod.uid) or pod.status
        return pod_deadline(pod, kept.get("startTime"))

    def _notice(self, pod: Pod, old: api.PodStatus, new: api.PodStatus) -> None:
        services = self._services
        if new.get("reason") == DEADLINE_REASON and old.get("reason") != DEADLINE_REASON:
            services.recorder.event(pod_reference(pod), NORMAL, DEADLINE_REASON, DEADLINE_MESSAGE)
        if new.get("phase") == "Running" and old.get("phase") in (None, "", "Pending"):
            seen = pod.annotations.get(CONFIG_SEEN)
            if seen:
                services.metrics.pod_running(services.clock.now() - parse_time(seen))

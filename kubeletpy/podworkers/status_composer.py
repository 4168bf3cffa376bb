"""Composes a pod's API status from the components' facts, and has it kept and written.

Owned by the workers: no other component passes a status to the status manager, so that all reports
about a pod come in one order. Gathers inputs only; the content of a status is decided by
:mod:`kubeletpy.status.generate`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.pods import PodWorkerMetrics
from kubeletpy.pods.pod import CONFIG_SEEN, TERMINAL_PHASES, Pod, family
from kubeletpy.pods.resources import qos_class
from kubeletpy.pods.runtime_status import PodRuntimeStatus, decide_sandbox, restart_all_active
from kubeletpy.podworkers.history import ReasonCache
from kubeletpy.podworkers.records import StatusOverride
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.runtime_manager.protocol import ActuatedResources, actuated_containers
from kubeletpy.status.container_status import completed_status, finished_status
from kubeletpy.status.generate import (
    DEADLINE_MESSAGE,
    DEADLINE_REASON,
    StatusInputs,
    addresses_of,
    generate_api_pod_status,
)
from kubeletpy.status.generate import deadline as pod_deadline
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.status.store import mirrored


class _Settled(Struct, frozen=True):
    """Inputs from which a status was composed without a change: equal inputs need no new one.

    An idle pod has equal inputs each minute.
    """

    inputs: StatusInputs
    containers_may_run: bool


DeviceHealth = Callable[[Pod], Mapping[str, list[api.ResourceStatus]]]
"""For a pod: allocatedResourcesStatus by container name."""
VolumeHealth = Callable[[str], Sequence[api.PodVolumeHealth]]


class StatusComposer(Component):
    """Composes and stores the API status of pods."""

    statuses: ApiStatusManager
    cache: PodStatusCache
    recorder: EventRecorder
    clock: Clock
    probes: KubeProbeManager
    # why containers could not be started.
    reasons: ReasonCache
    resizes: AllocationManager
    # the resources last applied to pods and containers, for what the runtime does not report.
    actuated: ActuatedResources
    # as container ids carry it.
    runtime_name: str
    metrics: PodWorkerMetrics
    # runtime handlers that support recursive read-only mounts now; "" is the default one.
    recursive_read_only: Callable[[], Collection[str]] = tuple
    # the node's addresses; may change in place.
    host_ips: Sequence[str] = ()
    # called with the runtime's status of a pod whenever its API status is composed.
    on_compose: Callable[[Pod, PodRuntimeStatus], None] = lambda pod, status: None
    # whether a pod (by uid) has claims not yet given back: others may get them once the API shows
    # its end.
    holds_claims: Callable[[str], bool] = lambda uid: False
    # the mirror of a static pod, which may have been seen since its sync began.
    mirror_of: Callable[[Pod], Pod | None] = lambda pod: None
    # of the devices that a pod's containers have, by container name.
    device_health: DeviceHealth = lambda pod: {}
    # of the volumes of a pod (by uid), as their drivers last reported it.
    volume_health: VolumeHealth = lambda uid: []
    # whether the node is about to go down.
    shutting_down: Callable[[], bool] = lambda: False
    # what the first status of a pod follows: the API's, unless its end was not reported there.
    first_status: Callable[[Pod, api.PodStatus], api.PodStatus] = lambda pod, status: status
    # called with the inputs of each status and the status, for replays.
    status_log: Callable[[StatusInputs, api.PodStatus], None] | None = None

    def __post_init__(self) -> None:
        self._settled: dict[str, _Settled] = {}
        """Settled inputs, by uid of their pod."""

    def store(
        self,
        pod: Pod,
        mirror: Pod | None,
        status: PodRuntimeStatus,
        *,
        terminated: bool = False,
        starting: bool = False,
        override: StatusOverride | None = None,
    ) -> bool:
        """Compose and store; whether the phase is terminal.

        A terminal phase is held back from the API only while a container runs or claims are held.
        Source: docs/reference/behaviour.md, f3.

        Args:
            terminated: nothing of the pod is left.
            starting: containers may have been started since ``status`` was read.
        """
        if terminated:
            self.resizes.ended(pod.uid)
        self.on_compose(pod, status)
        old = self.reported(pod, mirror)
        sandbox = decide_sandbox(pod, status)
        inputs = StatusInputs(
            pod=pod,
            runtime=status,
            runtime_name=self.runtime_name,
            old=old,
            now=self.clock.now(),
            sandbox_usable=not sandbox.create,
            sandbox_message=sandbox.message,
            restarting_all=restart_all_active(pod, status),
            recursive_read_only=_handler(status) in self.recursive_read_only(),
            shutting_down=self.shutting_down(),
            host_ips=tuple(self.host_ips),
            # an ended pod waits for no start: its last exit is the truth about it
            start_errors={} if terminated else self.reasons.get(pod.uid),
            probes=self.probes.results(pod),
            terminated=terminated,
            resize_conditions=self.resizes.conditions(pod.uid),
            actuated=actuated_containers(self.actuated, pod),
            actuated_pod=self.actuated.get_pod_level(pod.uid),
            device_health=self.device_health(pod),
            volume_health=self.volume_health(pod.uid),
        )
        may_run = not terminated and (
            starting or bool(status.running_containers) or self.cache.is_doubtful(pod.uid)
        )
        may_run = may_run or self.holds_claims(pod.uid)
        idle = override is None and not terminated
        if idle and self._is_settled(inputs, may_run):
            self.probes.status_stored(pod, old)
            return old.get("phase") in TERMINAL_PHASES
        new = generate_api_pod_status(inputs)
        if self.status_log is not None:
            self.status_log(inputs, new)
        if override is not None:
            new = override(new)
        self._notice(pod, old, new)
        self.statuses.set_status(pod, new, containers_may_run=may_run)
        if idle and self.statuses.get_status(pod.uid) is old:
            self._settled[pod.uid] = _Settled(inputs, may_run)
        else:
            self._settled.pop(pod.uid, None)
        self.probes.status_stored(pod, new)
        return new.get("phase") in TERMINAL_PHASES

    def _is_settled(self, inputs: StatusInputs, may_run: bool) -> bool:
        """Whether composing from these would change nothing, and the API has what is kept."""
        settled = self._settled.get(inputs.pod.uid)
        return (
            settled is not None
            and settled.containers_may_run is may_run
            and inputs.is_like(settled.inputs)
            and self.statuses.is_reported(inputs.pod.uid)
        )

    def reported(self, pod: Pod, mirror: Pod | None) -> api.PodStatus:
        """The newest status of a pod that the API has, or is about to get."""
        kept = self.statuses.get_status(pod.uid)
        if kept is not None:
            return kept
        if pod.is_static:
            mirror = self.mirror_of(pod) or mirror
        if mirror is not None and pod.is_reported_by(mirror):
            return mirrored(mirror)
        return self.first_status(pod, pod.status)

    def refresh(self, pod: Pod, mirror: Pod | None, override: StatusOverride | None = None) -> None:
        """Recompose the status from what is known, if there is one already."""
        status = self.cache.status(pod.uid)
        if status is not None and self.statuses.get_status(pod.uid) is not None:
            self.store(pod, mirror, status, override=override)

    def complete(self, pod: Pod) -> None:
        """Add to the last status of an ended pod the containers that ran and that it lacks."""
        status, last = self.cache.status(pod.uid), self.statuses.get_status(pod.uid)
        if status is not None and last is not None:
            self.store(
                pod,
                None,
                status,
                terminated=True,
                override=lambda composed: completed_status(last, composed),
            )

    def reject(self, pod: Pod, rejection: Rejection) -> None:
        """The status of a pod that this node refuses to run.

        A pod that has run here, before a reboot or a restart of the agent, keeps the known state of
        its containers. A container whose end nobody saw is shown as lost. While containers still
        run, none is shown: the pod is being stopped, and how they end is not known yet.
        """
        refusal, reported = rejected_status(pod, rejection), self.reported(pod, None)
        status = self.cache.status(pod.uid)
        known = _has_run(reported) or (status is not None and not status.empty)
        if not known or (status is not None and status.running_containers):
            refusal = {**addresses_of(reported), **refusal}
            self.statuses.set_status(pod, refusal, containers_may_run=False)
            return
        self.store(
            pod,
            None,
            status or PodRuntimeStatus(pod.uid, pod.name, pod.namespace),
            terminated=True,
            override=lambda composed: finished_status(
                pod, {**composed, **refusal}, self.clock.now()
            ),
        )

    def show_held(self, pod: Pod) -> None:
        """A pod's admission takes a while: show what has become of one that ran before.

        After a reboot its containers have ended, whatever the API shows; it is not Ready. Its
        addresses stay: if it is rejected, they were its last ones.
        """
        entry, reported = self.cache.get(pod.uid), self.reported(pod, None)
        if entry is not None and entry.error:
            return  # the runtime has something of it that could not be read yet
        status = entry.status if entry is not None else None
        if _has_run(reported) and not (status and status.running_containers):
            self.store(
                pod,
                None,
                status or PodRuntimeStatus(pod.uid, pod.name, pod.namespace),
                override=lambda composed: {**addresses_of(reported), **composed},
            )

    def deadline(self, pod: Pod) -> float | None:
        """Unix seconds at which activeDeadlineSeconds ends the pod; None without one."""
        kept = self.statuses.get_status(pod.uid) or pod.status
        return pod_deadline(pod, kept.get("startTime"))

    def shows_end(self, uid: str) -> bool:
        """Whether the pod's newest status is terminal."""
        return (self.statuses.get_status(uid) or {}).get("phase") in TERMINAL_PHASES

    def _notice(self, pod: Pod, old: api.PodStatus, new: api.PodStatus) -> None:
        if new.get("reason") == DEADLINE_REASON and old.get("reason") != DEADLINE_REASON:
            self.recorder.event(
                pod_reference(pod), NORMAL, Reason.DEADLINE_EXCEEDED, DEADLINE_MESSAGE
            )
        before, now = old.get("hostIP"), new.get("hostIP")
        if before and now and family(before) != family(now):
            self.recorder.event(
                pod_reference(pod),
                WARNING,
                Reason.HOST_IPS_IP_FAMILY_MISMATCH,
                f"The node's address was {before} (IPv{family(before)}), and the cloud controller "
                f"has set {now} (IPv{family(now)}); start the node's agent with --node-ip to fix "
                "this",
            )
        if new.get("phase") == "Running" and old.get("phase") in (None, "", "Pending"):
            seen = pod.annotations.get(CONFIG_SEEN)
            if seen:
                self.metrics.pod_start_duration.observe(self.clock.now() - parse_time(seen))


def _has_run(status: api.PodStatus) -> bool:
    return bool(status.get("containerStatuses") or status.get("initContainerStatuses"))


def rejected_status(pod: Pod, rejection: Rejection) -> api.PodStatus:
    """The status of a refused pod: Failed until it is deleted."""
    status: api.PodStatus = {
        "phase": "Failed",
        "reason": rejection.reason,
        "message": f"Pod was rejected: {rejection.message}",
        "qosClass": qos_class(pod).value,
    }
    if pod.generation:
        status["observedGeneration"] = pod.generation
    return status


def _handler(status: PodRuntimeStatus) -> str:
    """The runtime handler that the newest sandbox was created with."""
    return status.sandboxes[0].runtime_handler if status.sandboxes else ""

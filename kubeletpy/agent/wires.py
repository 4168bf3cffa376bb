"""What the rooms of an agent tell and ask each other: each wire is a few lines between two of them.

Must never decide anything about a pod, and never keep anything of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kubeletpy.admission.facts import NodeState
from kubeletpy.admission.verdict import Rejection
from kubeletpy.agent.health import AgentHealth
from kubeletpy.allocation.checkpoint import ResourceState
from kubeletpy.allocation.manager import AllocationManager
from kubeletpy.cgroups.manager import PodCgroups
from kubeletpy.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.eviction.keeper import LocalStorageKeeper
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.conditions import NodeHealth
from kubeletpy.node.manager import NodeManager
from kubeletpy.parts import AgentParts
from kubeletpy.pods.decision import Decision
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.podworkers.pod_directories import PodDirectories
from kubeletpy.podworkers.start_latency import StartLatency
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.manager import KubeProbeManager
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.runtime_manager.manager import KubeRuntimeManager
from kubeletpy.shutdown.manager import ShutdownManager
from kubeletpy.status.manager import ApiStatusManager
from kubeletpy.syncloop.admission_gate import AdmissionGate
from kubeletpy.syncloop.housekeeping import NodePods
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.upkeep import Upkeep

CONTAINER_TYPES = {
    "containerStatuses": "container",
    "initContainerStatuses": "init_container",
    "ephemeralContainerStatuses": "ephemeral_container",
}
"""List of a pod status -> container_type label."""


class Wires:
    """The ends of all wires; :class:`~kubeletpy.agent.rooms.AgentRooms` makes what they lead to."""

    parts: AgentParts
    metrics: Metrics
    pods: PodManager
    cache: PodStatusCache
    recorder: EventRecorder
    runtime: KubeRuntimeManager
    cgroups: PodCgroups | None
    statuses: ApiStatusManager
    starts: StartLatency
    node: NodeManager | None
    directories: PodDirectories
    allocated: ResourceState
    actuated: ResourceState
    allocations: AllocationManager
    workers: PodWorkers
    local_storage: LocalStorageKeeper | None
    probes: KubeProbeManager
    gate: AdmissionGate
    loop: SyncLoop
    upkeep: Upkeep
    shutdown: ShutdownManager
    health: AgentHealth

    def _node_health(self) -> NodeHealth:
        return self.health.node_health()

    def _runtime_error(self) -> str:
        return self.health.runtime_error()

    def render_metrics(self) -> bytes:
        """A scrape; counts what is in the specs and in the runtime first."""
        known = (*self.pods.pods(), *self.pods.mirrors())
        self.metrics.pods.ephemeral_containers(sum(len(p.ephemeral_containers) for p in known))
        pods, states = 0, Counter[str]()
        for uid in self.cache:
            status = self.cache.status(uid)
            if status is not None:
                pods += status.has_ready_sandbox
                states.update(container.state.value for container in status.containers)
        self.metrics.pods.in_runtime(pods, states)
        return self.metrics.render()

    def _node_changed(self) -> None:
        if self.node is not None:
            self.node.poke()

    def _directories_swept(self) -> None:
        self.loop.tell_hooks_again()

    def _api_object(self, pod: Pod) -> None:
        self.starts.shown(pod)
        self.statuses.reconcile(pod)

    def _wake(self, uid: str) -> None:
        self.loop.sync_pod(uid)

    def _runtime_changed(self, uid: str, events: Sequence[Any]) -> None:
        self.loop.runtime_changed(uid, events)

    def _content_removable(self, uid: str) -> bool:
        """Whether a pod's records may go: not before the API knows how its containers ended."""
        if self.loop.is_unknown(uid):
            return False
        return self.workers.should_content_be_removed(uid) and self.statuses.is_told(uid)

    def _probe_settled(self, uid: str, kind: ProbeKind, result: ProbeOutcome) -> None:
        """Ready and started are shown at once, whatever the worker is busy with."""
        if kind is ProbeKind.LIVENESS:
            if result is ProbeOutcome.FAILURE:
                self.loop.sync_pod(uid)
            return
        self.workers.refresh_status(uid)
        self.loop.sync_pod(uid)

    def _pod_finished(self, uid: str) -> None:
        self.upkeep.collect_soon()
        # also of a pod that came and went between two passes: nothing else tells that it was there
        self.loop.tell_hooks_again()
        self.loop.housekeeping_soon(uid)
        self.shutdown.pod_finished()

    def _may_run(self, uid: str) -> bool:
        """Whether a pod is wanted or its containers may run."""
        if self.pods.get(uid) is not None or self.loop.is_unknown(uid):
            return True
        return self.workers.could_have_running_containers(uid)

    def _needs_directory(self, uid: str) -> bool:
        """Whether a pod may run, or its worker has still to take down its volumes."""
        return self._may_run(uid) or not self.workers.should_be_finished(uid)

    def _active_pods(self) -> list[Pod]:
        return [self.allocations.allocated(pod) for pod in self.loop.active_pods()]

    def _resize_refused(self, pod: Pod) -> Rejection | None:
        others = [other for other in self.loop.admitted_pods() if other.uid != pod.uid]
        return self.gate.fits(pod, others)

    def _has_volumes(self, uid: str) -> bool:
        try:
            return any((self.parts.root_dir / "pods" / uid / "volumes").iterdir())
        except OSError:
            return False

    def _after_housekeeping(self, found: NodePods) -> None:
        self.probes.forget_except(found.possibly_running)
        self.starts.forget_except(found.desired)
        self.allocations.keep(found.desired)
        self.actuated.keep(found.desired | found.possibly_running)
        if self.local_storage is not None:
            self.local_storage.pods_changed(found.possibly_running)
        self.directories.sweep_soon(found.desired | found.possibly_running)
        if self.cgroups is not None:
            self.cgroups.sweep_soon()
        if self.parts.user_namespaces is not None:
            self.parts.user_namespaces.keep(found.desired | found.possibly_running)

    def _admission_state(self) -> NodeState:
        state = self.parts.admission
        return replace(state, shutting_down=True) if self.shutdown.shutting_down else state

    def _shutdown_changed(self) -> None:
        self.runtime.hurry(self.shutdown.shutting_down)
        self._node_changed()

    def _shutdown_observed(self, what: str, at: float) -> None:
        node = self.metrics.node
        (node.shutdown_start if what == "start" else node.shutdown_end).set(at)

    def _decided(self, uid: str, decisions: Sequence[Decision]) -> None:
        self.workers.decided(uid, decisions)

    def _status_refused(self, pod: Pod, why: str) -> None:
        message = f"The API does not take the pod's status: {why}"
        self.recorder.event(pod_reference(pod), WARNING, "FailedStatusUpdate", message)

    def _container_terminated(self, field: str, exit_code: int, reason: str) -> None:
        kind = CONTAINER_TYPES[field]
        self.metrics.starts.terminated_containers.labels(kind, str(exit_code), reason).inc()

"""One node agent: its rooms, what they tell and ask each other, and the tasks they run as.

Everything outside (runtime, API, clock, chance, machine) comes in as AgentParts, so the same agent
runs on a node and on virtual time. Must never decide anything about a pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from kubeletpy.admission.facts import NodeState
from kubeletpy.admission.verdict import Rejection
from kubeletpy.agent import making
from kubeletpy.agent.health import AgentHealth
from kubeletpy.allocation.manager import AllocationManager
from kubeletpy.cgroups.manager import PodCgroups
from kubeletpy.cgroups.protocol import NoPodCgroups
from kubeletpy.events.log_recorder import LogRecorder
from kubeletpy.events.recorder import NORMAL, WARNING, EventRecorder, node_reference, pod_reference
from kubeletpy.explain.server import SOCKET_NAME, ExplainServer
from kubeletpy.explain.snapshot import Rooms, Snapshots
from kubeletpy.explain.stuck import StuckPods
from kubeletpy.kubeapi.events import EventWriter
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.conditions import NodeHealth
from kubeletpy.node.lease import LeaseKeeper
from kubeletpy.node.manager import NodeManager
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.parts import AgentParts
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.pod_directories import PodDirectories
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.podworkers.workers import AsyncPodWorkers
from kubeletpy.probes.manager import KubeProbeManager
from kubeletpy.probes.prober import Prober
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.runtime_manager.protocol import ProbeOutcome
from kubeletpy.runtime_manager.results import Decision
from kubeletpy.shutdown.logind import SystemLogind
from kubeletpy.shutdown.manager import ShutdownManager
from kubeletpy.status.manager import ApiStatusManager
from kubeletpy.syncloop.admission_gate import AdmissionGate
from kubeletpy.syncloop.dead_containers import DeadContainers
from kubeletpy.syncloop.early_looks import EarlyLooks
from kubeletpy.syncloop.event_stream import EventStream
from kubeletpy.syncloop.housekeeping import Housekeeping, NodePods
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import Pleg
from kubeletpy.trace.spans import Traces

log = logging.getLogger(__name__)

CONTAINER_TYPES = {
    "containerStatuses": "container",
    "initContainerStatuses": "init_container",
    "ephemeralContainerStatuses": "ephemeral_container",
}
"""List of a pod status -> container_type label."""
STOP_S = 3.0
"""How long a stopping agent waits for calls under way."""


class Agent:
    """One node agent. Make it inside a running event loop."""

    def __init__(self, parts: AgentParts) -> None:
        self.parts = parts
        self.metrics = parts.metrics
        self.pods = PodManager()
        self.cache = PodStatusCache()
        api = parts.kube_api
        self._events = (
            EventWriter(parts.events_api or api, parts.clock, parts.node.name, rng=parts.rng)
            if api is not None
            else None
        )
        self.recorder: EventRecorder = self._events or LogRecorder()
        self.cgroups = self._make_cgroups()
        self.traces = Traces()
        self.actuated = making.resource_state(parts, "actuated_pods_state")
        self.runtime = making.runtime_manager(parts, self.recorder, self.cgroups, self.actuated)
        self.monitor = RuntimeMonitor(self.runtime, self._node_changed)
        self.statuses = ApiStatusManager(
            api,
            parts.clock,
            mirror_of=self.pods.mirror_of,
            on_termination=self._container_terminated,
            on_written=self.metrics.workers.pod_status_sync_duration.observe,
            on_refused=self._status_refused,
            traces=self.traces,
            rng=parts.rng,
        )
        self.node = making.node_manager(parts, self.recorder, self._node_health)
        self.mirrors = making.mirrors(parts, self.pods, self.node)
        self.own_node = making.own_node(parts, self.recorder, self.node)
        self.volumes = making.volumes(parts, self.recorder, self._wake)
        self.directories = PodDirectories(
            parts.root_dir / "pods", self.volumes.release_orphan, self._directories_swept
        )
        self.allocated = making.resource_state(parts, "allocated_pods_state")
        self.allocations = self._make_allocations()
        self.workers = self._make_workers(api)
        self.local_storage = making.local_storage(
            parts, self.recorder, self.pods, self.cache, self.workers
        )
        self.pleg = Pleg(
            self.runtime,
            self.cache,
            parts.clock,
            self._runtime_changed,
            settings=parts.pleg,
            metrics=self.metrics.pleg,
        )
        self.stream = EventStream(
            parts.runtime,
            self.runtime.event_to_status,
            self.cache,
            self.pleg,
            clock=parts.clock,
            on_change=self._runtime_changed,
            rng=parts.rng,
        )
        self.early_looks = EarlyLooks(parts.runtime, self.cache, self.pleg, self.pods.current)
        self.cache.subscribe(self.early_looks.changed)
        self._sources = making.sources(parts, lambda: self.loop, self.own_node)
        self.loop = self._make_loop()
        self.upkeep = making.upkeep(
            parts,
            self.runtime,
            self.recorder,
            all_sources_ready=lambda: self.loop.all_sources_ready,
            removable=self._content_removable,
            told=self.statuses.is_told,
        )
        self.shutdown = self._make_shutdown()
        self.health = AgentHealth(
            self.monitor,
            self.pleg,
            self.cache,
            self.loop,
            self.shutdown,
            sync_frequency=parts.requeue.sync_frequency,
        )
        self.explain = self._make_explain()
        self.companions: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = []
        """Further tasks that live and die with the agent: name, and what makes it."""
        if parts.on_connection is not None:
            parts.on_connection(self.monitor.connection_changed)

    # -- building ----------------------------------------------------------------------------

    def _make_cgroups(self) -> PodCgroups | None:
        if self.parts.cgroups is None:
            return None
        return PodCgroups(
            self.parts.cgroups,
            self.recorder,
            self.metrics.node,
            node_name=self.parts.node.name,
            active_pods=self._active_pods,
            in_use=self._may_run,
            has_volumes=self._has_volumes,
        )

    def _make_probes(self) -> KubeProbeManager:
        parts = self.parts
        return KubeProbeManager(
            Prober(parts.runtime, self.recorder),
            clock=parts.clock,
            get_status=self.statuses.get_status,
            on_result=self._probe_settled,
            metrics=self.metrics.probes,
            agent_started_at=parts.clock.now(),
            rng=parts.rng,
        )

    def _make_allocations(self) -> AllocationManager:
        return AllocationManager(
            self.allocated,
            self.recorder,
            self.parts.clock,
            rules=self.parts.resizes,
            metrics=self.metrics.resizes,
            judge=self._resize_refused,
            current=self.pods.get,
            sync=self._wake,
            sources_ready=lambda: self.loop.all_sources_ready,
            decided=self._decided,
        )

    def _make_gate(self) -> AdmissionGate:
        return AdmissionGate(
            self._admission_state,
            self.recorder,
            self.parts.clock,
            self.metrics.workers,
            node=self.own_node.current,
            newest_node=self.own_node.newest,
            kill=self.workers.kill_pod,
        )

    def _make_workers(self, api: KubeApi | None) -> AsyncPodWorkers:
        parts = self.parts
        self.probes = self._make_probes()
        self.services = SyncServices(
            runtime=self.runtime,
            statuses=self.statuses,
            volumes=self.volumes,
            probes=self.probes,
            cache=self.cache,
            recorder=self.recorder,
            clock=parts.clock,
            pods_dir=parts.root_dir / "pods",
            kube_api=api,
            recursive_read_only=making.recursive_read_only(parts),
            mirrors=self.mirrors,
            cgroups=self.cgroups or NoPodCgroups(),
            resizes=self.allocations,
            actuated=self.actuated,
            decided=self._decided,
            network_error=self.monitor.network_error,
            host_ips=lambda: parts.node_ips,
            agent_started_at=parts.clock.now(),
            metrics=self.metrics.workers,
        )
        self.syncer = KubePodSyncer(self.services)
        return AsyncPodWorkers(
            self.syncer,
            self.cache,
            self.runtime,
            self.recorder,
            parts.clock,
            settings=parts.requeue,
            rng=parts.rng,
            current_pod=self.pods.current,
            allocated=self.allocations.allocated,
            traces=self.traces,
            metrics=self.metrics.workers,
            on_finished=self._pod_finished,
        )

    def _make_loop(self) -> SyncLoop:
        self.gate = self._make_gate()
        delete_mirror = self.mirrors.delete if self.mirrors is not None else lambda mirror: None
        return SyncLoop(
            self._sources,
            pods=self.pods,
            workers=self.workers,
            statuses=self.statuses,
            cache=self.cache,
            housekeeping=Housekeeping(
                self.pods,
                self.workers,
                self.statuses,
                self.cache,
                delete_mirror=delete_mirror,
                hooks=(self._after_housekeeping,),
                metrics=self.metrics.pods,
            ),
            dead_containers=self._make_dead_containers(),
            recorder=self.recorder,
            clock=self.parts.clock,
            admit=self.gate,
            allocations=self.allocations,
            runtime_error=self._runtime_error,
            on_api_object=self.statuses.reconcile,
        )

    def _make_dead_containers(self) -> DeadContainers:
        self.dead = DeadContainers(
            self.runtime, self.cache, self._content_removable, self.statuses.is_told
        )
        return self.dead

    def _make_shutdown(self) -> ShutdownManager:
        return ShutdownManager(
            self.parts.shutdown_periods,
            connect=SystemLogind.connect,
            pods=self.loop.active_pods,
            kill=self.workers.kill_pod,
            is_finished=self.workers.should_be_finished,
            changed=self._shutdown_changed,
            observe=self._shutdown_observed,
            recorder=self.recorder,
            clock=self.parts.clock,
            node_name=self.parts.node.name,
            root_dir=self.parts.root_dir,
        )

    def _make_explain(self) -> ExplainServer:
        rooms = Rooms(
            self.pods,
            self.workers,
            self.statuses,
            self.cache,
            self.services.reasons,
            self.services.probes,
            self.parts.clock,
            self.health.runtime_error,
            self.monitor.network_error,
            self.loop.awaits_admission,
        )
        self.snapshots = Snapshots(rooms)
        self.stuck_pods = StuckPods(self.snapshots.ending, self.snapshots.facts, self.recorder)
        return ExplainServer(self.parts.root_dir / SOCKET_NAME, self.snapshots, self.traces)

    # -- running -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled; containers go on without us."""
        self.metrics.node.node_name.labels(self.parts.node.name).set(1)
        self.recorder.event(
            node_reference(self.parts.node.name), NORMAL, "Starting", "Starting kubelet."
        )
        await self.monitor.check()
        try:
            async with asyncio.TaskGroup() as group:
                for name, work in self._tasks():
                    group.create_task(work, name=name)
        finally:
            await self._stop()

    def _tasks(self) -> list[tuple[str, Coroutine[Any, Any, None]]]:
        tasks = [
            ("runtime-monitor", self.monitor.run()),
            ("pleg", self.pleg.run()),
            ("runtime-events", self.stream.run()),
            ("sync-loop", self.loop.run()),
            ("stuck-pods", self.stuck_pods.run()),
            ("dead-containers", self.dead.run()),
            ("container-gc", self.upkeep.collect_containers()),
            ("image-gc", self.upkeep.collect_images()),
        ]
        if self.cgroups is not None:
            tasks.append(("cgroups", self.cgroups.run()))
        tasks += [(f"source-{name}", make()) for name, make in self._sources.items()]
        tasks += [(name, make()) for name, make in self.companions]
        if self.local_storage is not None:
            tasks.append(("local-storage", self.local_storage.run()))
        if self.shutdown.enabled:
            tasks.append(("node-shutdown", self.shutdown.run()))
        if self._events is not None:
            tasks.append(("events", self._events.run()))
        if self.node is not None:
            api = self.parts.heartbeat_api or self.parts.kube_api
            assert api is not None, "a node manager comes with an API"
            tasks.append(("node", self.node.run()))
            tasks.append(("own-node", self.own_node.run()))
            tasks.append(("node-lease", self._keep_lease(api, self.node)))
            tasks.append(("static-pods-mirrors", self._mirror_when_registered(self.node)))
        return tasks

    async def _stop(self) -> None:
        """Let go within STOP_S: what is unfinished is taken up by the next start."""
        try:
            async with asyncio.timeout(STOP_S):
                await self.workers.close()
                await self.probes.close()
                self.early_looks.close()
                if self.mirrors is not None:
                    await self.mirrors.close()
                await self.statuses.close()
                await self.directories.close()
                self.allocations.close()
                self.gate.close()
                await self.allocated.close()
                await self.actuated.close()
                if self.cgroups is not None:
                    await self.cgroups.close()
                await self.runtime.drain(STOP_S / 2)
        except TimeoutError:
            log.info("stopped with calls under way")

    async def _keep_lease(self, api: KubeApi, node: NodeManager) -> None:
        await node.registered.wait()
        keeper = LeaseKeeper(
            api,
            self.parts.clock,
            self.parts.node.name,
            self.parts.node.lease_duration_s,
            node_uid=lambda: node.uid,
            rng=self.parts.rng,
        )
        await keeper.run()

    async def _mirror_when_registered(self, node: NodeManager) -> None:
        await node.registered.wait()
        self.loop.sync_static_pods()

    # -- what the rooms tell and ask ---------------------------------------------------------

    def _node_health(self) -> NodeHealth:
        return self.health.node_health()

    def _runtime_error(self) -> str:
        return self.health.runtime_error()

    def render_metrics(self) -> bytes:
        """A scrape; counts what is in the runtime first."""
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
        current = self.pods.current(uid)
        if current is not None:
            self.syncer.refresh_status(self.allocations.allocated(current[0]), current[1])
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

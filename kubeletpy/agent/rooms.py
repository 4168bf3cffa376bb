"""The rooms of an agent, made in their order and wired to each other.

Everything outside (runtime, API, clock, chance, machine) comes in as AgentParts. Must never start
anything: :class:`~kubeletpy.agent.agent.Agent` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kubeletpy.agent import making
from kubeletpy.agent.health import AgentHealth
from kubeletpy.agent.wires import Wires
from kubeletpy.allocation.manager import AllocationManager
from kubeletpy.cgroups.manager import PodCgroups
from kubeletpy.events.log_recorder import LogRecorder
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.explain.server import SOCKET_NAME, ExplainServer
from kubeletpy.explain.snapshot import Rooms, Snapshots
from kubeletpy.explain.stuck import StuckPods
from kubeletpy.kubeapi.events import EventWriter
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.parts import AgentParts
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.pod_directories import PodDirectories
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.start_latency import StartLatency
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.steps.cgroup import PodCgroup
from kubeletpy.podworkers.steps.directories import Directories
from kubeletpy.podworkers.steps.mirror import MirrorPod
from kubeletpy.podworkers.steps.network import NetworkGate
from kubeletpy.podworkers.steps.probes import Probes
from kubeletpy.podworkers.steps.pull_secrets import PullSecrets
from kubeletpy.podworkers.steps.runtime import RuntimeSync
from kubeletpy.podworkers.steps.volumes import Volumes
from kubeletpy.podworkers.sync_step import SyncStep
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.manager import KubeProbeManager
from kubeletpy.probes.prober import Prober
from kubeletpy.shutdown.logind import SystemLogind
from kubeletpy.shutdown.manager import ShutdownManager
from kubeletpy.status.manager import ApiStatusManager
from kubeletpy.syncloop.admission_gate import AdmissionGate
from kubeletpy.syncloop.dead_containers import DeadContainers
from kubeletpy.syncloop.early_looks import EarlyLooks
from kubeletpy.syncloop.event_stream import EventStream
from kubeletpy.syncloop.housekeeping import Housekeeping
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import Pleg
from kubeletpy.trace.spans import Traces


class AgentRooms(Wires):
    """All rooms of one agent. Make it inside a running event loop."""

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
        self.starts = StartLatency(self.metrics.workers, parts.clock)
        self.runtime = making.runtime_manager(
            parts, self.recorder, self.cgroups, self.actuated, self.starts
        )
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
            parts.root_dir / "pods",
            self.volumes.release_orphan,
            self._directories_swept,
            self.metrics.pods.orphan_directories,
            self._needs_directory,
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

    def _make_workers(self, api: KubeApi | None) -> PodWorkers:
        parts = self.parts
        self.probes = self._make_probes()
        self.reasons = ReasonCache()
        self.composer = StatusComposer(
            self.statuses,
            self.cache,
            self.recorder,
            parts.clock,
            probes=self.probes,
            reasons=self.reasons,
            resizes=self.allocations,
            actuated=self.actuated,
            runtime_name=self.runtime.runtime_name,
            recursive_read_only=making.recursive_read_only(parts),
            host_ips=parts.node_ips,
            agent_started_at=parts.clock.now(),
            looked_at=self.starts.looked_at,
            metrics=self.metrics.workers,
        )
        syncer = KubePodSyncer(
            self._steps(api),
            self.composer,
            self.runtime,
            self.cache,
            probes=self.probes,
            recorder=self.recorder,
            clock=parts.clock,
        )
        return PodWorkers(
            WorkerMachine(parts.requeue),
            syncer,
            self.composer,
            self.cache,
            runtime=self.runtime,
            recorder=self.recorder,
            clock=parts.clock,
            rng=parts.rng,
            current_pod=self.pods.current,
            allocated=self.allocations.allocated,
            traces=self.traces,
            metrics=self.metrics.workers,
            on_finished=self._pod_finished,
        )

    def _steps(self, api: KubeApi | None) -> list[SyncStep]:
        steps: list[SyncStep] = [NetworkGate(self.monitor.network_error, self.recorder)]
        if self.cgroups is not None:
            steps.append(PodCgroup(self.cgroups, self.runtime, self.cache, self.recorder))
        if self.mirrors is not None:
            steps.append(MirrorPod(self.mirrors))
        return [
            *steps,
            Directories(self.parts.root_dir / "pods", self.recorder),
            Volumes(self.volumes, self.recorder),
            PullSecrets(api, self.recorder),
            Probes(self.probes),
            RuntimeSync(
                self.runtime,
                self.composer,
                self.cache,
                probes=self.probes,
                reasons=self.reasons,
                resizes=self.allocations,
                is_told=self.statuses.is_told,
                decided=self._decided,
            ),
        ]

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
            on_api_object=self._api_object,
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
            self.reasons,
            self.probes,
            self.parts.clock,
            self.health.runtime_error,
            self.monitor.network_error,
            self.loop.awaits_admission,
        )
        self.snapshots = Snapshots(rooms)
        self.stuck_pods = StuckPods(self.snapshots.ending, self.snapshots.facts, self.recorder)
        return ExplainServer(self.parts.root_dir / SOCKET_NAME, self.snapshots, self.traces)

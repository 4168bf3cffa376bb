"""The core of an agent: what is built from what, until a pod can run.

Each component is a member of :class:`Core`, made when it is first needed, by its constructor and
from other members. ``components`` lists them in the order in which they start, with their hooks for
the agent: tasks, start and end. A part of one subject has a module of its own in this package,
built by one call here. Must never decide anything about a pod, nor import code that only observes
pods: the observers are built from the finished core.

Add a new component as a member, and to ``components``; a new capability of a pod gets an entry in
``steps``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kubeletpy.agent import node as agent_node
from kubeletpy.agent import resources
from kubeletpy.agent import runtime as agent_runtime
from kubeletpy.agent.agent import AgentHealth
from kubeletpy.agent.context import BuildContext, Component, Task
from kubeletpy.agent.placement import Placed, build_placement
from kubeletpy.agent.pod_state import (
    Events,
    PodSources,
    PodState,
    build_events,
    build_housekeeping,
    build_sources,
)
from kubeletpy.agent.storage import Storage
from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import metric_label
from kubeletpy.kubeapi.events.writer import KeptEvents
from kubeletpy.node.build import NodeHealth
from kubeletpy.node.guards.oom_watch import OOMWatch
from kubeletpy.node.runtime import RuntimeClassHandlers, RuntimeMonitor, RuntimeUpkeep
from kubeletpy.node.server_version import VersionFollower
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import qos_class, resource_levels
from kubeletpy.podworkers.pod_directories import PodDirectories
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.steps.resources import ClaimsStep, PodCgroup
from kubeletpy.podworkers.steps.runtime import MirrorPod, NetworkGate, Probes, RuntimeSync
from kubeletpy.podworkers.steps.volumes import Directories, PullSecrets, Volumes
from kubeletpy.podworkers.syncer import KubePodSyncer, SyncStep, TerminatingUpdates
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.registration import DevicePluginHandler
from kubeletpy.resources.plugins.model import DEVICE, DRA, Handlers
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.act.user_namespaces import UserNamespaceRanges, settle_unknown_ranges
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.read.host_dns import host_dns
from kubeletpy.syncloop.housekeeping import DeadContainers, Housekeeping
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import RelistHealth
from kubeletpy.volumes.containers.container_mounts import NO_OPTIONS, OPTIONS_GATE, ContainerMounts

if TYPE_CHECKING:
    from kubeletpy.agent.offline import Offline
    from kubeletpy.syncloop.offline_start import OfflineStarts

DRAIN_S = 1.5
"""How long a stopping agent waits for the runtime to finish the calls under way."""


class Core(BuildContext, frozen=True, dict=True, eq=False):
    """The components that run pods. Observers are built from it; it refers to none of them."""

    offline: Offline | None = None
    """None: no pod starts without the API server."""

    # -- shared state: the pods, what runs of them, what is reported about them -----------------

    @cached_property
    def events(self) -> Events:
        """The recorder of events, and what sends them."""
        return build_events(self.outside, self.node_name, self.backlog, self.node_uid)

    @property
    def recorder(self) -> KeptEvents:
        """The recorder of all components."""
        return self.events.recorder

    @cached_property
    def version(self) -> VersionFollower | None:
        """Follows the version of the API server."""
        return agent_node.build_version(self)

    @cached_property
    def state(self) -> PodState:
        """The state of all pods."""
        return PodState(self)

    def running(self) -> list[Pod]:
        """The pods that use the node, with the resources allocated to them."""
        return [self.allocations.allocated(pod) for pod in self.state.active()]

    # -- what has been allocated to pods --------------------------------------------------------

    @cached_property
    def rules(self) -> RuntimeSettings:
        """The settings of containers."""
        machine = self.outside.machine
        return agent_runtime.runtime_settings(
            self.settings, self.flags, machine, self.root, self.host_ips
        )

    @cached_property
    def allocated(self) -> resources.Allocations:
        """The resources allocated to pods, and those that they were last given."""
        return resources.build_allocations(self, self.state, self.rules, self._fits)

    def _fits(self, pod: Pod) -> Rejection | None:
        """Why a resized pod would not fit next to the others; None: it does."""
        return self.admission.gate.fits(pod, self.loop.admitted_pods(but=pod.uid))

    @property
    def allocations(self) -> AllocationManager:
        """The resources allocated to pods."""
        return self.allocated.manager

    @cached_property
    def devices(self) -> DeviceManager:
        """The devices of plugins."""
        return resources.build_devices(self, self.state)

    @cached_property
    def claims(self) -> resources.ClaimParts:
        """The resource claims of pods, and their drivers."""
        return resources.build_claims(self)

    @cached_property
    def placement(self) -> Placed:
        """The positions of pods on the machine."""
        return build_placement(self, self.state, before=(self.devices,))

    @cached_property
    def cgroups(self) -> resources.Cgroups:
        """The cgroups of pods."""
        return resources.build_cgroups(
            self,
            self.state,
            has_no_quota=self.placement.cpus.has_no_quota,
            active_pods=self.running,
            has_volumes=self.directories.has_volumes,
        )

    @cached_property
    def user_namespaces(self) -> UserNamespaceRanges:
        """The ids that pods are mapped to."""
        return resources.build_user_namespaces(self, self.runtime_upkeep.info)

    # -- volumes, and what else containers see --------------------------------------------------

    @cached_property
    def storage(self) -> Storage:
        """The volumes of pods."""
        drivers, plugins = self.claims.drivers, self.devices.plugins
        handlers: Handlers = {DRA: drivers, DEVICE: DevicePluginHandler(plugins)}
        return Storage(self, self.state.pods.get, handlers)

    @cached_property
    def handlers(self) -> RuntimeClassHandlers:
        """Resolves the RuntimeClasses of pods."""
        return RuntimeClassHandlers(self.kube_api)

    @cached_property
    def mounts(self) -> ContainerMounts:
        """Mounts of containers."""
        return ContainerMounts(
            self.pods_dir,
            cluster_domain=self.settings.cluster_domain,
            recursive_read_only=self._recursive_read_only,
            options_refused=self._options_refused,
            handler=self.handlers.handler,
            rights=self.storage.rights,
        )

    def _recursive_read_only(self) -> frozenset[str]:
        return self.runtime_upkeep.info().handlers_with("recursiveReadOnlyMounts")

    def _options_refused(self) -> str:
        if not self.gates.enabled(OPTIONS_GATE):
            return f"the feature gate {OPTIONS_GATE} is off"
        return "" if "mount_options" in self.runtime_upkeep.info().features else NO_OPTIONS

    @cached_property
    def directories(self) -> PodDirectories:
        """Removes the directories of pods that have ended."""
        return PodDirectories(
            self.pods_dir,
            release=self.storage.volumes.release_orphan,
            again=self.signals.republish_pods,
            swept=self.outside.metrics.pods.orphan_directories,
            desired=self.state.remains.needs_directory,
        )

    # -- the runtime ----------------------------------------------------------------------------

    @cached_property
    def runtime_upkeep(self) -> RuntimeUpkeep:
        """Keeps the runtime and the Node object in sync."""
        return RuntimeUpkeep(
            self.outside.runtime,
            self.outside.runtime_info,
            read=self.outside.read_runtime_info,
            changed=self.signals.node_changed,
            pod_cidr=self.settings.pod_cidr if self.outside.api is None else "",
        )

    @cached_property
    def images(self) -> agent_runtime.Images:
        """Pulls images, and removes those that nothing uses."""
        return agent_runtime.build_images(self, self.state, self.storage.tokens)

    @cached_property
    def runtime(self) -> KubeRuntimeManager:
        """Makes the runtime run what pods request, and reads back what runs."""
        outside, cpus = self.outside, self.placement.cpus
        mounts, claims, placed = self.mounts, self.claims.manager, self.placement.providers
        return KubeRuntimeManager(
            outside.runtime,
            self.images.manager,
            self.recorder,
            outside.clock,
            outside.metrics.starts,
            root_dir=str(self.root),
            settings=self.rules,
            # what goes into containers besides their spec, in this order
            providers=(self.storage.environment, mounts, claims, self.devices, *placed),
            runtime_handler=self.user_namespaces.checked(self.handlers.handler),
            cgroup_parent=self.cgroups.parent,
            user_namespace=self.user_namespaces.pod_range,
            host_dns=lambda: host_dns(self.settings.resolv_conf),
            hooks=LifecycleHookRunner(
                outside.runtime,
                self.recorder,
                outside.metrics.hooks,
                self.host_ips,
                self.gates.version,
            ),
            actuated=self.allocated.actuated,
            pod_limits=self.cgroups.limits,
            resize_volume=self.storage.volumes.resize,
            placement=cpus.placement,
            max_crash_loop_delay=self.settings.crash_loop_back_off.max_container_restart_period,
            first_crash_loop_delay=agent_runtime.first_crash_loop_delay(self.gates),
            booted_at=outside.machine.booted_at or 0.0,
            concurrent_starts=outside.machine.concurrent_starts,
            backlog=self.backlog,
            gc_policy=GCPolicy.from_flags(self.flags),
            plan_log=self.state.flight.plan,
            stop_log=self.signals.container_stopping,
            sandbox_watch=self.cgroups.driver_check,
        )

    @cached_property
    def monitor(self) -> RuntimeMonitor:
        """Checks the runtime's health."""
        return RuntimeMonitor(self.runtime.source.health, self.signals.runtime_health_changed)

    # -- the node -------------------------------------------------------------------------------

    @cached_property
    def node(self) -> agent_node.ApiNode:
        """The Node object, its lease, and mirror pods."""
        return agent_node.build_node(
            self,
            runtime_info=self.runtime_upkeep.info,
            desired=lambda pod: self.state.pods.current(pod.uid) is not None,
            health=self._node_health,
            volumes_in_use=self.storage.claims.volumes_in_use,
            volumes_in_use_written=self.storage.claims.volumes_in_use_written,
            devices=self.devices.counts,
        )

    @cached_property
    def oom_watch(self) -> OOMWatch | None:
        """Follows the kernel's log of OOM kills."""
        return agent_node.build_oom_watch(self)

    def _node_health(self) -> NodeHealth:
        return self.health.node_health()

    def newest_node(self) -> api.Node:
        """The newest known version of the node's object, whatever its source."""
        return self.node.own.current()

    # -- a pod's worker -------------------------------------------------------------------------

    @cached_property
    def probes(self) -> KubeProbeManager:
        """Probes the containers of pods."""
        return agent_runtime.build_probes(self, self.state, self.recorder)

    @cached_property
    def composer(self) -> StatusComposer:
        """Composes the API status of pods."""
        state, outside, claims = self.state, self.outside, self.claims
        return StatusComposer(
            state.statuses,
            state.cache,
            self.recorder,
            outside.clock,
            probes=self.probes,
            reasons=state.reasons,
            resizes=self.allocations,
            actuated=self.allocated.actuated,
            runtime_name=outside.runtime_info.name,
            recursive_read_only=self._recursive_read_only,
            host_ips=self.host_ips,
            on_compose=state.starts.observe_runtime,
            holds_claims=claims.manager.holds,
            mirror_of=state.pods.mirror_of,
            device_health=resources.device_health(self.gates, self.devices, claims.device_health),
            volume_health=self.storage.volume_health,
            shutting_down=lambda: self.admission.shutdown.shutting_down,
            first_status=self._first_status,
            metrics=outside.metrics.workers,
            status_log=state.flight.status,
        )

    def _first_status(self, pod: Pod, status: api.PodStatus) -> api.PodStatus:
        return self.admission.shutdown.with_earlier_end(pod, status)

    @cached_property
    def pull_secrets(self) -> PullSecrets:
        """The step that reads pull secrets."""
        return PullSecrets(self.kube_api, self.recorder)

    @cached_property
    def steps(self) -> list[SyncStep]:
        """The steps of a pod's sync, in order."""
        state, recorder, clock = self.state, self.recorder, self.outside.clock
        runtime, mirrors, groups = self.runtime, self.node.mirrors, self.cgroups.pods
        kill, rejections = (
            runtime.killer.kill_pod,
            self.outside.metrics.workers.admission_rejections,
        )
        steps: list[SyncStep | None] = [
            NetworkGate(self.monitor.network_error, recorder),
            PodCgroup(groups, kill, state.cache, recorder) if groups is not None else None,
            MirrorPod(mirrors.reconcile) if mirrors is not None else None,
            Directories(self.pods_dir, recorder),
            Volumes(
                self.storage.volumes,
                recorder,
                rejected=lambda reason: rejections.labels(metric_label(reason)).inc(),
            ),
            self.pull_secrets,
            ClaimsStep(self.claims.manager, recorder, clock),
            Probes(self.probes),
            RuntimeSync(
                runtime.executor.sync_pod,
                self.composer,
                state.cache,
                probes=self.probes,
                reasons=state.reasons,
                resizes=self.allocations,
                is_reported=state.statuses.is_reported,
                decided=state.decided,
            ),
        ]
        return [step for step in steps if step is not None]

    @cached_property
    def workers(self) -> PodWorkers:
        """A worker for each pod."""
        state, outside = self.state, self.outside
        clock, rng, recorder = outside.clock, outside.rng, self.recorder
        updates = TerminatingUpdates(self.steps, self.settings.sync_frequency, rng)
        syncer = KubePodSyncer(
            self.steps,
            self.composer,
            state.cache,
            read_pod=self.runtime.source.read_pod_status,
            kill_pod=self.runtime.killer.kill_pod,
            probes=self.probes,
            recorder=recorder,
            clock=clock,
            updates=updates,
            traces=state.traces,
        )
        return PodWorkers(
            state.machine,
            syncer,
            self.composer,
            state.cache,
            recorder=recorder,
            clock=clock,
            rng=rng,
            current_pod=state.pods.current,
            allocated=self.allocations.allocated,
            history=state.history,
            traces=state.traces,
            metrics=outside.metrics.workers,
            on_finished=self.signals.pod_finished,
            on_update=updates.touch,
            event_log=state.flight.event,
        )

    # -- what drives the workers ----------------------------------------------------------------

    @cached_property
    def offline_starts(self) -> OfflineStarts | None:
        """Decides which pods start while no API server has answered; None: none does."""
        if self.offline is None:
            return None
        return self.offline.starts(self._runs, self.newest_node, self.state.decided)

    def _runs(self, uid: str) -> bool:
        status = self.state.cache.status(uid)
        return status is not None and bool(status.running_containers)

    @cached_property
    def admission(self) -> agent_node.Admission:
        """Decides which pods the node runs."""
        return agent_node.build_admission(
            self,
            self.state,
            self.workers,
            node=self.node.own,
            place=self.placement.place,
            devices=self.devices,
            manager=self.node.manager,
            volumes=self.storage.claims,
            awaits_admission=self._awaits_admission,
            offline=starts.hold if (starts := self.offline_starts) is not None else None,
        )

    def _awaits_admission(self, uid: str) -> bool:
        return self.loop.awaits_admission(uid)

    @cached_property
    def relists(self) -> RelistHealth:
        """Whether the runtime is relisted."""
        return RelistHealth()

    @cached_property
    def health(self) -> AgentHealth:
        """Combines the health of the parts."""
        csi = self.storage.csi
        return AgentHealth(
            self.monitor,
            self.relists,
            self.state.cache,
            self.admission.shutdown,
            pressures=self.pressures,
            storage=lambda: csi.writer.problem if csi is not None else "",
            cgroups=self.cgroups.problem,
        )

    @cached_property
    def dead(self) -> DeadContainers:
        """Removes older records of containers that died."""
        state, remove = self.state, self.runtime.remover.container
        removable, reported = state.remains.removable, state.statuses.is_reported
        return DeadContainers(remove, state.cache, removable, self.backlog, reported)

    @cached_property
    def housekeeping(self) -> Housekeeping:
        """Cleans up after pods."""
        return build_housekeeping(self, self.state, self.workers, self.node.mirrors)

    @cached_property
    def loop(self) -> SyncLoop:
        """Dispatches to the workers."""
        state = self.state
        return SyncLoop(
            state.sources,
            merge=state.merge,
            unread=state.unread,
            pods=state.pods,
            active=state.active,
            workers=self.workers,
            queries=state.queries,
            cache=state.cache,
            housekeeping=self.housekeeping,
            dead_containers=self.dead,
            recorder=self.recorder,
            clock=self.outside.clock,
            admit=self.admission.gate,
            allocations=self.allocations,
            runtime_error=self.health.runtime_error,
            on_api_object=self.signals.pod_reported,
            show_held=self.composer.show_held,
            on_updated=self.admission.gate.updated,
            on_admitted=self._admitted,
            on_merged=self._merged if self.offline_starts is not None else None,
        )

    def _merged(self, source: str) -> None:
        """Compare all statuses with those of the API once a start without it is over."""
        assert self.offline_starts is not None
        if self.offline_starts.merged(source):
            for pod in self.state.pods.pods():
                self.state.statuses.reconcile(pod)

    def _admitted(self, pod: Pod) -> None:
        self.outside.metrics.workers.pod_admitted(resource_levels(pod), qos_class(pod))
        self.admission.shutdown.admitted(pod)

    @cached_property
    def sources(self) -> PodSources:
        """The sources of pods."""
        starts = self.offline_starts
        return build_sources(
            self,
            self.loop,
            self.node.own,
            self.state.decided,
            from_record=starts.from_record if starts is not None else lambda: False,
        )

    # -- the order of starting ------------------------------------------------------------------

    @cached_property
    def components(self) -> Sequence[Component]:
        """The components with their hooks, in the order in which they start."""
        outside, state, runtime, shutdown = (
            self.outside,
            self.state,
            self.runtime,
            self.admission.shutdown,
        )
        return [
            Component(outside, tuple(outside.credentials)),
            *self.events.components,
            *agent_node.version_components(self, self.version),
            *agent_node.build_guards(self, self.oom_watch),
            *state.components,
            *self.allocated.components,
            Component(
                self.devices,
                (Task("devices", self.devices.plugins.run),),
                start=self.devices.start,
                close=self.devices.close,
            ),
            *self.claims.components,
            *self.storage.components,
            *self.placement.components,
            Component(
                self.directories,
                keep=lambda found: self.directories.sweep_soon(found.existing),
                close=self.directories.close,
            ),
            *self.cgroups.components,
            Component(
                self.user_namespaces,
                start=lambda: settle_unknown_ranges(self.user_namespaces, outside.runtime),
                keep=lambda found: self.user_namespaces.release_others(found.existing),
            ),
            *self.images.components,
            Component(runtime, close=lambda: runtime.drain(DRAIN_S)),
            Component(
                self.monitor, (Task("runtime-monitor", self.monitor.run),), start=self.monitor.check
            ),
            Component(
                self.probes,
                keep=lambda found: self.probes.forget_except(found.possibly_running),
                close=self.probes.close,
            ),
            Component(self.runtime_upkeep, (Task("runtime-upkeep", self.runtime_upkeep.run),)),
            *([Component(each, close=each.close)] if (each := self.node.mirrors) else []),
            Component(self.workers, close=self.workers.close),
            *agent_runtime.build_runtime_changes(self, state, runtime, self.loop, self.relists),
            Component(self.dead, (Task("dead-containers", self.dead.run),)),
            Component(self.admission.gate, close=self.admission.gate.close),
            Component(self.loop, (Task("sync-loop", self.loop.run),)),
            Component(state.sources, tuple(self.sources.tasks)),
            Component(
                shutdown,
                (Task("node-shutdown", shutdown.run),) if shutdown.enabled else (),
                start=shutdown.recall,
            ),
        ]

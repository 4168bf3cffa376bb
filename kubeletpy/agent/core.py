"""The core of an agent: what is built from what, in order, until a pod can run.

One function, read from top to bottom. Each object is constructed from what stands above it;
``components`` then has its hooks for the agent: its tasks, how it starts and how it ends. A part
of one subject has a module of its own in this package, built by one call here. Must never decide
anything about a pod, nor import code that only observes pods: the observers are built from the
finished :class:`Core`.

Build a new component where everything it needs exists, and add it to ``components`` next to it; a
new capability of a pod gets an entry in ``steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletpy.agent import resources as agent_resources
from kubeletpy.agent.agent import AgentHealth
from kubeletpy.agent.context import BuildContext, Component, Outside, Task
from kubeletpy.agent.node import (
    Admission,
    ApiNode,
    build_admission,
    build_guards,
    build_node,
    build_version,
)
from kubeletpy.agent.placement import Placed, build_placement
from kubeletpy.agent.pod_state import PodState, build_events, source_tasks
from kubeletpy.agent.runtime import Images, build_images, build_runtime_changes, runtime_settings
from kubeletpy.agent.signals import Signals
from kubeletpy.agent.storage import Storage, build_storage
from kubeletpy.base.clock import SteadyClock
from kubeletpy.base.tasks import Backlog
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.kubeapi.events.reasons import metric_label
from kubeletpy.node.facts import NodeAddresses, NodeOptions
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
from kubeletpy.probes.prober import Prober
from kubeletpy.resources.admission.declared_features import NodeConfiguration, declared
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.registration import DevicePluginHandler
from kubeletpy.resources.plugins.model import DEVICE, DRA
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.read.host_dns import host_dns
from kubeletpy.syncloop.housekeeping import DeadContainers, Housekeeping
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import RelistHealth
from kubeletpy.volumes.containers.container_mounts import NO_OPTIONS, OPTIONS_GATE, ContainerMounts

DRAIN_S = 1.5
"""How long a stopping agent waits for the runtime to finish the calls under way."""


class Core(BuildContext, frozen=True, kw_only=True):
    """The components that run pods. Observers are built from it; it refers to none of them.

    Attributes:
        components: in the order in which they start.
        api_back: called when the API answers again.
        manifest_problems: which manifests of static pods can't be used.
    """

    components: Sequence[Component]
    state: PodState
    admission: Admission
    allocations: AllocationManager
    api_back: Sequence[Callable[[], None]]
    cgroups: agent_resources.Cgroups
    claims: agent_resources.ClaimParts
    devices: DeviceManager
    health: AgentHealth
    housekeeping: Housekeeping
    images: Images
    loop: SyncLoop
    manifest_problems: Sequence[Callable[[], str]]
    monitor: RuntimeMonitor
    node: ApiNode
    placement: Placed
    probes: KubeProbeManager
    pull_secrets: PullSecrets
    runtime: KubeRuntimeManager
    runtime_upkeep: RuntimeUpkeep
    storage: Storage
    version: VersionFollower | None
    workers: PodWorkers

    def running(self) -> list[Pod]:
        """The pods that use the node, with the resources allocated to them."""
        return [self.allocations.allocated(pod) for pod in self.state.active()]


def build_core(  # noqa: PLR0915 - one page, read from top to bottom
    settings: KubeletSettings, flags: NodeFlags, outside: Outside
) -> Core:
    """Build what runs pods. Raises ConfigError if credential providers can't be used."""
    machine, clock, rng, metrics = outside.machine, outside.clock, outside.rng, outside.metrics
    info, gates, life = outside.runtime_info, settings.feature_gates, SteadyClock(clock)
    options = NodeOptions.from_settings(
        settings,
        flags,
        hostname=machine.facts.hostname,
        port=settings.port if outside.ports is None else outside.ports.port,
        declared_features=declared(
            NodeConfiguration(gates, info.features, settings.cpu_manager_policy)
        ),
    )
    metrics.node.node_name.labels(options.name).set(1)
    backlog = Backlog()
    events = build_events(outside, options.name, backlog)
    signals, recorder = Signals(), events.recorder
    from_cloud = options.external_cloud_provider and outside.api is not None
    context = BuildContext(
        settings=settings,
        flags=flags,
        outside=outside,
        options=options,
        recorder=recorder,
        signals=signals,
        started_at=life.now(),
        backlog=backlog,
        cloud_ips=NodeAddresses(()) if from_cloud else None,
    )
    kube_api, root, pods_dir = context.kube_api, context.root, context.root / "pods"
    version, following = build_version(context)
    components = [
        Component(outside, tuple(outside.credentials)),
        *events.components,
        *following,
        *build_guards(context),
    ]

    # -- shared state: the pods, what runs of them, what is reported about them -----------------
    state = PodState(context)
    pods, cache, active, remains = state.pods, state.cache, state.active, state.remains
    statuses, flight = state.statuses, state.flight
    components += state.components

    # -- what has been allocated to pods --------------------------------------------------------
    rules = runtime_settings(settings, flags, machine, root, context.host_ips)
    allocated = agent_resources.build_allocations(context, state, rules)
    allocations = allocated.manager
    devices, device_component = agent_resources.build_devices(context, state)
    components += [*allocated.components, device_component]

    # -- volumes, and what else containers see --------------------------------------------------
    runtime_upkeep = RuntimeUpkeep(
        outside.runtime,
        info,
        read=outside.read_runtime_info,
        changed=signals.node_changed,
        pod_cidr=settings.pod_cidr if outside.api is None else "",
    )
    claims = agent_resources.build_claims(context)
    storage = build_storage(
        context,
        pod=pods.get,
        plugins={DRA: claims.drivers, DEVICE: DevicePluginHandler(devices.plugins)},
    )
    components += [*claims.components, *storage.components]

    def recursive_read_only() -> frozenset[str]:
        return runtime_upkeep.info().handlers_with("recursiveReadOnlyMounts")

    def options_refused() -> str:
        if not gates.enabled(OPTIONS_GATE):
            return f"the feature gate {OPTIONS_GATE} is off"
        return "" if "mount_options" in runtime_upkeep.info().features else NO_OPTIONS

    handlers = RuntimeClassHandlers(kube_api)
    mounts = ContainerMounts(
        pods_dir,
        cluster_domain=settings.cluster_domain,
        recursive_read_only=recursive_read_only,
        options_refused=options_refused,
        handler=handlers.handler,
        rights=storage.rights,
    )

    placement = build_placement(context, state, before=(devices,))
    components += placement.components
    directories = PodDirectories(
        pods_dir,
        release=storage.volumes.release_orphan,
        again=signals.republish_pods,
        swept=metrics.pods.orphan_directories,
        desired=remains.needs_directory,
    )
    components.append(
        Component(
            directories,
            keep=lambda found: directories.sweep_soon(found.existing),
            close=directories.close,
        )
    )
    cgroups = agent_resources.build_cgroups(
        context,
        state,
        has_no_quota=placement.cpus.has_no_quota,
        active_pods=lambda: [allocations.allocated(pod) for pod in active()],
        has_volumes=directories.has_volumes,
    )
    user_namespaces, namespace_component = agent_resources.build_user_namespaces(
        context, runtime_upkeep.info
    )
    components += [*cgroups.components, namespace_component]

    # -- the runtime ----------------------------------------------------------------------------
    images = build_images(context, state, storage.tokens)
    components += images.components
    runtime = KubeRuntimeManager(
        outside.runtime,
        images.manager,
        recorder,
        clock,
        metrics.starts,
        root_dir=str(root),
        settings=rules,
        # what goes into containers besides their spec, in this order
        providers=(storage.environment, mounts, claims.manager, devices, *placement.providers),
        runtime_handler=user_namespaces.checked(handlers.handler),
        cgroup_parent=cgroups.parent,
        user_namespace=user_namespaces.pod_range,
        host_dns=lambda: host_dns(settings.resolv_conf),
        hooks=LifecycleHookRunner(
            outside.runtime, recorder, metrics.hooks, context.host_ips, gates.version
        ),
        actuated=allocated.actuated,
        pod_limits=cgroups.limits,
        resize_volume=storage.volumes.resize,
        placement=placement.cpus.placement,
        max_crash_loop_delay=settings.crash_loop_back_off.max_container_restart_period,
        concurrent_starts=machine.concurrent_starts,
        backlog=backlog,
        gc_policy=GCPolicy.from_flags(flags),
        plan_log=flight.plan,
        sandbox_watch=cgroups.driver_check,
    )
    monitor = RuntimeMonitor(runtime.source.health, signals.runtime_health_changed)
    components += [
        Component(runtime, close=lambda: runtime.drain(DRAIN_S)),
        Component(monitor, (Task("runtime-monitor", monitor.run),), start=monitor.check),
    ]

    # -- a pod's worker -------------------------------------------------------------------------
    probes = KubeProbeManager(
        Prober(
            outside.runtime,
            recorder,
            http2=gates.enabled("H2CContainerProbe"),
            grpc_tls=gates.enabled("GRPCContainerProbeTLS"),
            version=gates.version,
        ),
        clock=clock,
        get_status=statuses.get_status,
        on_result=signals.probe_settled,
        metrics=metrics.probes,
        agent_started_at=life.beginning,
        rng=rng,
    )
    components.append(
        Component(
            probes,
            keep=lambda found: probes.forget_except(found.possibly_running),
            close=probes.close,
        )
    )

    composer = StatusComposer(
        statuses,
        cache,
        recorder,
        clock,
        probes=probes,
        reasons=state.reasons,
        resizes=allocations,
        actuated=allocated.actuated,
        runtime_name=info.name,
        recursive_read_only=recursive_read_only,
        host_ips=context.host_ips,
        on_compose=state.starts.observe_runtime,
        holds_claims=claims.manager.holds,
        mirror_of=pods.mirror_of,
        device_health=agent_resources.device_health(gates, devices, claims.device_health),
        volume_health=storage.volume_health,
        metrics=metrics.workers,
        status_log=flight.status,
    )
    components.append(Component(runtime_upkeep, (Task("runtime-upkeep", runtime_upkeep.run),)))
    node = build_node(
        context,
        runtime_info=runtime_upkeep.info,
        desired=lambda pod: pods.current(pod.uid) is not None,
        volumes_in_use=storage.claims.volumes_in_use,
        volumes_in_use_written=storage.claims.volumes_in_use_written,
        devices=devices.counts,
    )
    mirrors, own_node = node.mirrors, node.own
    events.of_node.lookup = own_node.uid
    if mirrors is not None:
        components.append(Component(mirrors, close=mirrors.close))
    pull_secrets = PullSecrets(kube_api, recorder)
    steps: list[SyncStep | None] = [
        NetworkGate(monitor.network_error, recorder),
        PodCgroup(cgroups.pods, runtime.killer.kill_pod, cache, recorder)
        if cgroups.pods is not None
        else None,
        MirrorPod(mirrors) if mirrors is not None else None,
        Directories(pods_dir, recorder),
        Volumes(
            storage.volumes,
            recorder,
            rejected=lambda reason: metrics.workers.admission_rejections.labels(
                metric_label(reason)
            ).inc(),
        ),
        pull_secrets,
        ClaimsStep(claims.manager, recorder, clock),
        Probes(probes),
        RuntimeSync(
            runtime.executor.sync_pod,
            composer,
            cache,
            probes=probes,
            reasons=state.reasons,
            resizes=allocations,
            is_reported=statuses.is_reported,
            decided=state.decided,
        ),
    ]
    made_steps = [step for step in steps if step is not None]
    updates = TerminatingUpdates(made_steps, settings.sync_frequency, rng)
    syncer = KubePodSyncer(
        made_steps,
        composer,
        cache,
        read_pod=runtime.source.read_pod_status,
        kill_pod=runtime.killer.kill_pod,
        probes=probes,
        recorder=recorder,
        clock=clock,
        updates=updates,
        traces=state.traces,
    )
    workers = PodWorkers(
        state.machine,
        syncer,
        composer,
        cache,
        recorder=recorder,
        clock=clock,
        rng=rng,
        current_pod=pods.current,
        allocated=allocations.allocated,
        history=state.history,
        traces=state.traces,
        metrics=metrics.workers,
        on_finished=signals.pod_finished,
        on_update=updates.touch,
        event_log=flight.event,
    )
    components.append(Component(workers, close=workers.close))

    # -- what drives the workers ----------------------------------------------------------------
    admission = build_admission(
        context, state, workers, node=own_node, place=placement.place, devices=devices
    )
    gate, shutdown = admission.gate, admission.shutdown
    dead = DeadContainers(
        runtime.remover.container, cache, remains.removable, backlog, statuses.is_reported
    )
    relists = RelistHealth()
    health = AgentHealth(
        monitor,
        relists,
        cache,
        shutdown,
        pressures=signals.pressures,
        storage=lambda: storage.csi.writer.problem if storage.csi is not None else "",
        cgroups=cgroups.problem,
    )
    housekeeping = Housekeeping(
        pods,
        workers,
        statuses,
        cache,
        active=active,
        queries=state.queries,
        delete_mirror=mirrors.delete if mirrors is not None else lambda mirror: None,
        reconcile_mirror=mirrors.reconcile if mirrors is not None else lambda pod, mirror: None,
        found=signals.pods_counted,
        metrics=metrics.pods,
    )
    loop = SyncLoop(
        state.sources,
        merge=state.merge,
        unread=state.unread,
        pods=pods,
        active=active,
        workers=workers,
        queries=state.queries,
        cache=cache,
        housekeeping=housekeeping,
        dead_containers=dead,
        recorder=recorder,
        clock=clock,
        admit=gate,
        allocations=allocations,
        runtime_error=health.runtime_error,
        on_api_object=signals.pod_reported,
        show_held=composer.show_held,
        on_updated=gate.updated,
        on_admitted=lambda pod: metrics.workers.pod_admitted(resource_levels(pod), qos_class(pod)),
    )
    pod_tasks, manifest_problems, api_back = source_tasks(context, loop, own_node, state.decided)
    components += [
        *build_runtime_changes(context, state, runtime, loop, relists),
        Component(dead, (Task("dead-containers", dead.run),)),
        Component(gate, close=gate.close),
        Component(loop, (Task("sync-loop", loop.run),)),
        Component(state.sources, tuple(pod_tasks)),
        Component(shutdown, (Task("node-shutdown", shutdown.run),) if shutdown.enabled else ()),
    ]
    return Core(
        settings=settings,
        flags=flags,
        outside=outside,
        options=options,
        recorder=recorder,
        signals=signals,
        started_at=context.started_at,
        backlog=backlog,
        cloud_ips=context.cloud_ips,
        components=components,
        state=state,
        admission=admission,
        allocations=allocations,
        api_back=api_back,
        cgroups=cgroups,
        claims=claims,
        devices=devices,
        health=health,
        housekeeping=housekeeping,
        images=images,
        loop=loop,
        manifest_problems=manifest_problems,
        monitor=monitor,
        node=node,
        placement=placement,
        probes=probes,
        pull_secrets=pull_secrets,
        runtime=runtime,
        runtime_upkeep=runtime_upkeep,
        storage=storage,
        version=version,
        workers=workers,
    )

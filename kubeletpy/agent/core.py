"""The core of an agent: what is built from what, in order, until a pod can run.

One function, read from top to bottom. Each object is constructed from what stands above it;
``components`` then has its hooks for the agent: its tasks, how it starts and how it ends.
Independent parts have their own modules, each built by one call here: :mod:`.allocations`,
:mod:`.devices`, :mod:`.claims`, :mod:`.storage`, :mod:`.placement`, :mod:`.cgroups`,
:mod:`.images`, :mod:`.node`, :mod:`.admission`. Must never decide anything about a pod, nor import
code that only observes pods: :mod:`.observers` is built from the finished :class:`Core`.

Build a new component where everything it needs exists, and add it to ``components`` next to it; a
new capability of a pod gets an entry in ``steps``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletpy.admission.declared_features import NodeConfiguration, declared
from kubeletpy.agent.admission import Admission, build_admission
from kubeletpy.agent.allocations import build_allocations
from kubeletpy.agent.cgroups import Cgroups, build_cgroups
from kubeletpy.agent.claims import ClaimParts, build_claims
from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.devices import build_devices, device_health
from kubeletpy.agent.flight_recorder import build_flight_recorder
from kubeletpy.agent.guards import build_guards
from kubeletpy.agent.health import AgentHealth
from kubeletpy.agent.images import Images, build_images
from kubeletpy.agent.node import ApiNode, build_node
from kubeletpy.agent.outside import Outside
from kubeletpy.agent.placement import Placed, build_placement
from kubeletpy.agent.pod_sources import expected_sources, source_tasks
from kubeletpy.agent.runtime_settings import runtime_settings
from kubeletpy.agent.signals import Signals
from kubeletpy.agent.storage import Storage, build_storage
from kubeletpy.allocation.allocation_manager import AllocationManager
from kubeletpy.clock import SteadyClock
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.devices.device_manager import DeviceManager
from kubeletpy.devices.registry import DevicePluginHandler
from kubeletpy.events.kept import KeptEvents
from kubeletpy.events.log_recorder import LogRecorder
from kubeletpy.events.node_uid import NodeUidRecorder
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import (
    NORMAL,
    WARNING,
    AnnotatingRecorder,
    node_reference,
    pod_reference,
)
from kubeletpy.kubeapi.events import EventWriter
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.runtime_classes import RuntimeClassHandlers
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.node.runtime_upkeep import RuntimeUpkeep
from kubeletpy.node.server_version import VersionFollower
from kubeletpy.plugins.model import DEVICE, DRA
from kubeletpy.pods.decision import Decision
from kubeletpy.pods.node_allocatable import GATE as CLAIMS_COUNT
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.qos import qos_class
from kubeletpy.pods.resources import resource_levels
from kubeletpy.podworkers.history import DecisionHistory
from kubeletpy.podworkers.pod_directories import PodDirectories
from kubeletpy.podworkers.queries import WorkerQueries
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.requeue import RequeueSettings, tick_of
from kubeletpy.podworkers.start_latency import StartLatency
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.steps.cgroup import PodCgroup
from kubeletpy.podworkers.steps.claims import ClaimsStep
from kubeletpy.podworkers.steps.directories import Directories
from kubeletpy.podworkers.steps.mirror import MirrorPod
from kubeletpy.podworkers.steps.network import NetworkGate
from kubeletpy.podworkers.steps.probes import Probes
from kubeletpy.podworkers.steps.pull_secrets import PullSecrets
from kubeletpy.podworkers.steps.runtime import RuntimeSync
from kubeletpy.podworkers.steps.volumes import Volumes
from kubeletpy.podworkers.sync_step import SyncStep
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.podworkers.terminating_updates import TerminatingUpdates
from kubeletpy.podworkers.workers import PodWorkers, log_impossible
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.probes.prober import Prober
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.act.settle_user_namespaces import settle_unknown_ranges
from kubeletpy.runtime_manager.act.user_namespaces import UserNamespaceRanges, subordinate_ids
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.read.host_dns import host_dns
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.syncloop.active_pods import ActivePods
from kubeletpy.syncloop.dead_containers import DeadContainers
from kubeletpy.syncloop.early_polls import EarlyPolls
from kubeletpy.syncloop.event_stream import EventStream
from kubeletpy.syncloop.housekeeping import Housekeeping
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.merge import Merge
from kubeletpy.syncloop.pleg import Pleg
from kubeletpy.syncloop.remains import Remains
from kubeletpy.syncloop.sources.ready import ReadySources
from kubeletpy.syncloop.unread import UnreadPods
from kubeletpy.trace.spans import Traces
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
    active: ActivePods
    admission: Admission
    allocations: AllocationManager
    api_back: Sequence[Callable[[], None]]
    cache: PodStatusCache
    cgroups: Cgroups
    claims: ClaimParts
    devices: DeviceManager
    early_polls: EarlyPolls
    health: AgentHealth
    housekeeping: Housekeeping
    images: Images
    kept_events: KeptEvents
    loop: SyncLoop
    manifest_problems: Sequence[Callable[[], str]]
    monitor: RuntimeMonitor
    node: ApiNode
    placement: Placed
    pods: PodManager
    probes: KubeProbeManager
    pull_secrets: PullSecrets
    queries: WorkerQueries
    reasons: ReasonCache
    remains: Remains
    runtime: KubeRuntimeManager
    runtime_upkeep: RuntimeUpkeep
    sources: ReadySources
    starts: StartLatency
    statuses: ApiStatusManager
    storage: Storage
    traces: Traces
    version: VersionFollower | None
    workers: PodWorkers

    def running(self) -> list[Pod]:
        """The pods that use the node, with the resources allocated to them."""
        return [self.allocations.allocated(pod) for pod in self.active()]


def build_core(  # noqa: PLR0915 - one page, read from top to bottom
    settings: KubeletSettings, flags: NodeFlags, outside: Outside
) -> Core:
    """Build what runs pods. Raises ConfigError if credential providers can't be used."""
    machine, clock, rng, metrics = outside.machine, outside.clock, outside.rng, outside.metrics
    info, api = outside.runtime_info, outside.api
    gates = settings.feature_gates
    life = SteadyClock(clock)
    signals, history = Signals(), DecisionHistory()
    components = [Component(outside, tuple(outside.credentials))]

    # -- shared state: the pods, what runs of them, what is reported about them -----------------
    options = NodeOptions.from_settings(
        settings,
        flags,
        hostname=machine.facts.hostname,
        port=settings.port if outside.ports is None else outside.ports.port,
        declared_features=declared(
            NodeConfiguration(gates, info.features, settings.cpu_manager_policy)
        ),
    )
    node_name = options.name
    metrics.node.node_name.labels(node_name).set(1)
    recorder: AnnotatingRecorder = LogRecorder()
    if api is not None:
        recorder = writer = EventWriter(api.events, clock, node_name, rng=rng)
        components.append(Component(writer, (Task("events", writer.run),)))
    recorder = node_events = NodeUidRecorder(recorder, node_name)
    recorder = kept_events = KeptEvents(recorder, clock)
    context = BuildContext(
        settings=settings,
        flags=flags,
        outside=outside,
        options=options,
        recorder=recorder,
        signals=signals,
        started_at=life.now(),
    )
    kube_api, root, pods_dir = context.kube_api, context.root, context.root / "pods"

    def decided(uid: str, decisions: Sequence[Decision]) -> None:
        history.add(uid, decisions, clock.now())

    async def announce() -> None:
        recorder.event(node_reference(node_name), NORMAL, Reason.STARTING, "Starting kubelet.")

    def version_differs(text: str, warning: bool) -> None:
        kind = WARNING if warning else NORMAL
        recorder.event(node_reference(node_name), kind, Reason.KUBERNETES_VERSION_DIFFERS, text)

    components.append(Component(recorder, start=announce))
    version: VersionFollower | None = None
    if outside.kubernetes is not None:
        version = VersionFollower(
            kube_api, outside.kubernetes, root, notify=version_differs, rng=rng
        )
        following = (Task("kubernetes-version", version.run),) if kube_api is not None else ()
        components.append(Component(version, following))
    components += build_guards(context)
    pods = PodManager()
    cache = PodStatusCache()
    requeue = RequeueSettings(settings.sync_frequency, tick=tick_of(node_name))
    machine_of_workers = WorkerMachine(requeue, log_impossible)
    queries = WorkerQueries(machine_of_workers)
    flight = build_flight_recorder(flags, clock, machine_of_workers, root, node_name)
    components += flight.components
    traces, reasons = Traces(outside.tracer, span_log=flight.span), ReasonCache()
    starts = StartLatency(metrics.workers, clock)
    statuses = ApiStatusManager(
        kube_api,
        clock,
        mirror_of=pods.mirror_of,
        on_termination=metrics.starts.container_terminated,
        on_written=metrics.workers.pod_status_sync_duration.observe,
        on_refused=lambda pod, why: recorder.event(
            pod_reference(pod),
            WARNING,
            Reason.FAILED_STATUS_UPDATE,
            f"The API does not accept the pod's status: {why}",
        ),
        on_change=signals.status_changed,
        traces=traces,
        rng=rng,
    )
    sources = expected_sources(settings, kube_api, outside.pod_sources)
    merge = Merge(claims_count=gates.enabled(CLAIMS_COUNT))
    unread = UnreadPods(merge, pods, cache, queries.record)
    active = ActivePods(pods, queries, statuses)
    remains = Remains(pods, queries, unread, statuses.is_reported)
    components += [
        Component(pods),
        Component(queries),
        Component(cache),
        Component(reasons),
        Component(starts, keep=lambda found: starts.forget_except(found.desired)),
        Component(statuses, close=statuses.close),
    ]

    # -- what has been allocated to pods --------------------------------------------------------
    rules = runtime_settings(settings, flags, machine, root)
    given = build_allocations(
        context,
        rules,
        current=pods.get,
        sources_ready=sources.all,
        decided=decided,
    )
    allocations = given.manager
    components += given.components
    devices, device_component = build_devices(
        context, cache, is_active=lambda uid: any(pod.uid == uid for pod in active())
    )
    components.append(device_component)

    # -- volumes, and what else containers see --------------------------------------------------
    runtime_upkeep = RuntimeUpkeep(
        outside.runtime,
        info,
        read=outside.read_runtime_info,
        changed=signals.node_changed,
        pod_cidr=settings.pod_cidr if api is None else "",
    )
    claims = build_claims(context)
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
    )

    def users() -> frozenset[str] | None:
        """The pods that use the node, including those that were removed from it but still run."""
        if not (sources.all() and cache.populated):
            return None
        return cache.running().union(pod.uid for pod in active())

    placement = build_placement(context, cache, users=users, decided=decided, before=(devices,))
    components += placement.components
    directories = PodDirectories(
        pods_dir,
        release=storage.volumes.release_orphan,
        again=signals.republish_pods,
        swept=metrics.pods.orphan_directories,
        wanted=remains.needs_directory,
    )
    components.append(
        Component(
            directories,
            keep=lambda found: directories.sweep_soon(found.existing),
            close=directories.close,
        )
    )
    cgroups = build_cgroups(
        context,
        has_no_quota=placement.cpus.has_no_quota,
        active_pods=lambda: [allocations.allocated(pod) for pod in active()],
        in_use=remains.may_run,
        has_volumes=directories.has_volumes,
    )
    components += cgroups.components
    user_namespaces = UserNamespaceRanges(
        pods_dir,
        supporting=lambda: runtime_upkeep.info().handlers_with("userNamespaces"),
        max_pods=settings.max_pods,
        ids_per_pod=settings.user_namespaces.ids_per_pod,
        owned=subordinate_ids(),
    )
    components.append(
        Component(
            user_namespaces,
            start=lambda: settle_unknown_ranges(user_namespaces, outside.runtime),
            keep=lambda found: user_namespaces.release_others(found.existing),
        )
    )

    # -- the runtime ----------------------------------------------------------------------------
    images = build_images(context, pods=pods, tokens=storage.tokens, starts=starts)
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
            outside.runtime, recorder, metrics.hooks, machine.node_ips, gates.version
        ),
        actuated=given.actuated,
        pod_limits=cgroups.limits,
        resize_volume=storage.volumes.resize,
        placement=placement.cpus.placement,
        runtime_name=info.name,
        max_crash_loop_delay=settings.crash_loop_back_off.max_container_restart_period,
        concurrent_starts=machine.concurrent_starts,
        gc_policy=GCPolicy.from_flags(flags),
        plan_log=flight.plan,
        sandbox_watch=cgroups.driver_check,
    )
    monitor = RuntimeMonitor(runtime, signals.runtime_health_changed)
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
        reasons=reasons,
        resizes=allocations,
        actuated=given.actuated,
        runtime_name=runtime.runtime_name,
        recursive_read_only=recursive_read_only,
        host_ips=machine.node_ips,
        agent_started_at=life.beginning,
        looked_at=starts.looked_at,
        holds_claims=claims.manager.holds,
        device_health=device_health(gates, devices, claims.device_health),
        volume_health=storage.volume_health,
        metrics=metrics.workers,
        status_log=flight.status,
    )
    components.append(Component(runtime_upkeep, (Task("runtime-upkeep", runtime_upkeep.run),)))
    node = build_node(
        context,
        runtime_info=runtime_upkeep.info,
        wanted=lambda pod: pods.current(pod.uid) is not None,
        volumes_in_use=storage.claims.operations.volumes_in_use,
        volumes_in_use_written=storage.claims.operations.volumes_in_use_written,
        devices=devices.counts,
    )
    mirrors, own_node = node.mirrors, node.own
    node_events.lookup = own_node.uid
    if mirrors is not None:
        components.append(Component(mirrors, close=mirrors.close))
    pull_secrets = PullSecrets(kube_api, recorder)
    steps: list[SyncStep | None] = [
        NetworkGate(monitor.network_error, recorder),
        PodCgroup(cgroups.pods, runtime, cache, recorder) if cgroups.pods is not None else None,
        MirrorPod(mirrors) if mirrors is not None else None,
        Directories(pods_dir, recorder),
        Volumes(
            storage.volumes,
            recorder,
            rejected=lambda reason: metrics.workers.admission_rejections.labels(
                reason.metric_label
            ).inc(),
        ),
        pull_secrets,
        ClaimsStep(claims.manager, recorder, clock),
        Probes(probes),
        RuntimeSync(
            runtime,
            composer,
            cache,
            probes=probes,
            reasons=reasons,
            resizes=allocations,
            is_reported=statuses.is_reported,
            decided=decided,
        ),
    ]
    made_steps = [step for step in steps if step is not None]
    updates = TerminatingUpdates(made_steps, settings.sync_frequency, rng)
    syncer = KubePodSyncer(
        made_steps,
        composer,
        runtime,
        cache,
        probes=probes,
        recorder=recorder,
        clock=clock,
        updates=updates,
    )
    workers = PodWorkers(
        machine_of_workers,
        syncer,
        composer,
        cache,
        runtime=runtime,
        recorder=recorder,
        clock=clock,
        rng=rng,
        current_pod=pods.current,
        allocated=allocations.allocated,
        history=history,
        traces=traces,
        metrics=metrics.workers,
        on_finished=signals.pod_finished,
        on_update=updates.touch,
        event_log=flight.event,
    )
    components.append(Component(workers, close=workers.close))

    # -- what drives the workers ----------------------------------------------------------------
    admission = build_admission(
        context,
        active=active,
        cache=cache,
        queries=queries,
        workers=workers,
        node=own_node,
        place=placement.place,
        held=devices.held_counts,
        plugins=devices.returned,
    )
    gate, shutdown = admission.gate, admission.shutdown
    pleg = Pleg(runtime, cache, clock, signals.runtime_changed, metrics.pleg)
    stream = EventStream(
        outside.runtime,
        runtime.event_to_status,
        cache,
        pleg,
        clock=clock,
        on_change=signals.runtime_changed,
        rng=rng,
    )
    early_polls = EarlyPolls(outside.runtime, cache, pleg, pods.current)
    dead = DeadContainers(runtime, cache, remains.removable, statuses.is_reported)
    health = AgentHealth(
        monitor,
        pleg,
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
        queries=queries,
        delete_mirror=mirrors.delete if mirrors is not None else lambda mirror: None,
        found=signals.pods_counted,
        metrics=metrics.pods,
    )
    loop = SyncLoop(
        sources,
        merge=merge,
        unread=unread,
        pods=pods,
        active=active,
        workers=workers,
        queries=queries,
        cache=cache,
        housekeeping=housekeeping,
        dead_containers=dead,
        recorder=recorder,
        clock=clock,
        admit=gate,
        allocations=allocations,
        runtime_error=health.runtime_error,
        on_api_object=signals.pod_shown,
        show_held=composer.show_held,
        on_updated=gate.updated,
        on_admitted=lambda pod: metrics.workers.pod_admitted(resource_levels(pod), qos_class(pod)),
    )
    pod_tasks, manifest_problems, api_back = source_tasks(context, loop, own_node, decided)
    components += [
        Component(pleg, (Task("pleg", pleg.run),)),
        Component(stream, (Task("runtime-events", stream.run),)),
        Component(early_polls, close=early_polls.close),
        Component(dead, (Task("dead-containers", dead.run),)),
        Component(gate, close=gate.close),
        Component(loop, (Task("sync-loop", loop.run),)),
        Component(sources, tuple(pod_tasks)),
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
        components=components,
        active=active,
        admission=admission,
        allocations=allocations,
        api_back=api_back,
        cache=cache,
        cgroups=cgroups,
        claims=claims,
        devices=devices,
        early_polls=early_polls,
        health=health,
        housekeeping=housekeeping,
        images=images,
        kept_events=kept_events,
        loop=loop,
        manifest_problems=manifest_problems,
        monitor=monitor,
        node=node,
        placement=placement,
        pods=pods,
        probes=probes,
        pull_secrets=pull_secrets,
        queries=queries,
        reasons=reasons,
        remains=remains,
        runtime=runtime,
        runtime_upkeep=runtime_upkeep,
        sources=sources,
        starts=starts,
        statuses=statuses,
        storage=storage,
        traces=traces,
        version=version,
        workers=workers,
    )

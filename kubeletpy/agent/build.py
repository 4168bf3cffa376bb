"""The composition root: what is made of what, in order, who hears what, and which tasks run.

One function, read from top to bottom. An object is made by its constructor, from what stands above
it; the few wires that go round in a circle are signals, connected below the last room that hears
them. The table at the end is all that the agent knows of its rooms. Must never decide anything
about a pod.

A new room is made where what it needs is there, and gets an entry in the table; a new capability of
a pod gets an entry in ``steps``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.admission.declared_features import declared
from kubeletpy.admission.facts import NodeState
from kubeletpy.agent.agent import Agent
from kubeletpy.agent.health import AgentHealth, SyncLoopHealth
from kubeletpy.agent.outside import Machine, Outside
from kubeletpy.agent.room import Room, Task, after
from kubeletpy.agent.scrape import Scrape
from kubeletpy.agent.signals import Signals
from kubeletpy.agent.upkeep import Upkeep
from kubeletpy.allocation.checkpoint import ResourceState
from kubeletpy.allocation.feasibility import ResizeRules
from kubeletpy.allocation.manager import AllocationManager
from kubeletpy.api import types as api_types
from kubeletpy.cgroups.limits import KernelPodLimits
from kubeletpy.cgroups.manager import PodCgroups
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.config import KubeletSettings, NodeFlags, document
from kubeletpy.config.flag_texts import flag_texts
from kubeletpy.events.log_recorder import LogRecorder
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import NORMAL, WARNING, node_reference, pod_reference
from kubeletpy.eviction.keeper import LocalStorageKeeper
from kubeletpy.eviction.next_look import PERIOD_S
from kubeletpy.eviction.node_pressure import NodePressureKeeper
from kubeletpy.eviction.thresholds import from_settings
from kubeletpy.eviction.uses import CollectedUses
from kubeletpy.explain.server import SOCKET_NAME, ExplainServer
from kubeletpy.explain.snapshot import Snapshots
from kubeletpy.explain.stuck import StuckPods
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.images.manager import ImageManager
from kubeletpy.images.node_credentials import NodeCredentials, default_paths
from kubeletpy.images.puller import PullSettings
from kubeletpy.images.records.from_settings import pull_records
from kubeletpy.kubeapi.events import EventWriter
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.kubeapi.services import ServiceList
from kubeletpy.metrics.exposition import CONTENT_TYPE
from kubeletpy.node.build import RuntimeInfo, new_node, node_status
from kubeletpy.node.conditions import NodeHealth
from kubeletpy.node.images import image_summaries
from kubeletpy.node.lease import LeaseKeeper
from kubeletpy.node.manager import NodeManager
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.own_node import OwnNode
from kubeletpy.node.resources import allocatable, capacity
from kubeletpy.node.runtime_classes import RuntimeClassHandlers
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.node.startup import NodeStartup
from kubeletpy.plugins.manager import PluginManager
from kubeletpy.plugins.model import CSI
from kubeletpy.pods.pod import SOURCE_API, SOURCE_FILE, SOURCE_HTTP, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.history import DecisionHistory
from kubeletpy.podworkers.pod_directories import PodDirectories
from kubeletpy.podworkers.queries import WorkerQueries
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.requeue import RequeueSettings
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
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.act.settle_user_namespaces import mend
from kubeletpy.runtime_manager.act.user_namespaces import UserNamespaces, subordinate_ids
from kubeletpy.runtime_manager.config.resources import has_swap
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.manager import KubeRuntimeManager
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.pod_limits import NoPodCgroupLimits, PodCgroupLimits
from kubeletpy.runtime_manager.read.host_dns import host_dns
from kubeletpy.server.build import KubeletServer
from kubeletpy.server.certificate import ServingCertificate, comes_from_cluster
from kubeletpy.server.debug.log_sinks import log_problem
from kubeletpy.server.debug.zpages import Program
from kubeletpy.server.health import HealthServer
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from kubeletpy.server.node_view import NodeView
from kubeletpy.shutdown.logind import SystemLogind
from kubeletpy.shutdown.manager import ShutdownManager
from kubeletpy.shutdown.plan import periods_of
from kubeletpy.stats.build import machine as read_machine
from kubeletpy.stats.build import make_collector
from kubeletpy.stats.disks import DiskMeter
from kubeletpy.stats.pod_storage import StorageMeter
from kubeletpy.stats.views import StatsViews
from kubeletpy.status.manager import ApiStatusManager
from kubeletpy.syncloop.active_pods import ActivePods
from kubeletpy.syncloop.admission_gate import AdmissionGate
from kubeletpy.syncloop.dead_containers import DeadContainers
from kubeletpy.syncloop.early_looks import EarlyLooks
from kubeletpy.syncloop.event_stream import EventStream
from kubeletpy.syncloop.housekeeping import Housekeeping
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.merge import Merge
from kubeletpy.syncloop.mirror import ApiMirrorKeeper
from kubeletpy.syncloop.pleg import Pleg
from kubeletpy.syncloop.remains import Remains
from kubeletpy.syncloop.sources.api import ApiSource
from kubeletpy.syncloop.sources.file import FileSource
from kubeletpy.syncloop.sources.http import HttpSource
from kubeletpy.syncloop.sources.ready import ReadySources
from kubeletpy.syncloop.unread import UnreadPods
from kubeletpy.trace.spans import Traces
from kubeletpy.volumes.claims.volumes import ClaimVolumes, kept
from kubeletpy.volumes.container_mounts import ContainerMounts
from kubeletpy.volumes.csi.build import Csi
from kubeletpy.volumes.environment import ContainerEnvironment
from kubeletpy.volumes.intree.host_path import HostPathPlugin
from kubeletpy.volumes.intree.local import LocalPlugin
from kubeletpy.volumes.intree.nfs import NfsPlugin
from kubeletpy.volumes.manager import NodeVolumes
from kubeletpy.volumes.plugin import VolumePlugin
from kubeletpy.volumes.runtime_features import mount_features
from kubeletpy.volumes.service_accounts import ClusterAccounts
from kubeletpy.volumes.tokens import PodTokens

if TYPE_CHECKING:
    from kubeletpy.images.providers.plugins import Plugins

NODE_KNOWN_S = 10.0
"""How long pods of the API wait for the node's own object at the start."""
DRAIN_S = 1.5
"""How long a stopping agent waits for the runtime to end what it was asked for."""


def build(  # noqa: PLR0915 - one page, read from top to bottom
    settings: KubeletSettings, flags: NodeFlags, outside: Outside
) -> Agent:
    """One node agent, not running. Make it inside a running event loop.

    Raises:
        ConfigError: the credential providers that the flags name can't be used.
        ServerError: the settings of the server ask for what can't be.
    """
    machine, clock, rng, metrics = outside.machine, outside.clock, outside.rng, outside.metrics
    facts, info, api = machine.facts, outside.runtime_info, outside.api
    kube_api = api.pods if api is not None else None
    root, pods_dir = Path(flags.root_dir), Path(flags.root_dir) / "pods"
    gates = settings.feature_gates
    started_at = clock.now()
    signals = Signals()

    # -- what everybody knows: the pods, what runs of them, what is said of them ----------------
    options = NodeOptions.from_settings(
        settings,
        flags,
        hostname=facts.hostname,
        port=settings.port if outside.ports is None else outside.ports.port,
        declared_features=declared(gates.effective),
    )
    node_name = options.name
    writer = EventWriter(api.events, clock, node_name, rng=rng) if api is not None else None
    recorder = writer or LogRecorder()
    pods = PodManager()
    cache = PodStatusCache()
    machine_of_workers = WorkerMachine(RequeueSettings(sync_frequency=settings.sync_frequency))
    queries = WorkerQueries(machine_of_workers)
    history, traces, reasons = DecisionHistory(), Traces(), ReasonCache()
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
            f"The API does not take the pod's status: {why}",
        ),
        traces=traces,
        rng=rng,
    )
    sources = ReadySources(
        [SOURCE_API] * (kube_api is not None)
        + [SOURCE_FILE] * bool(settings.static_pod_path)
        + [SOURCE_HTTP] * bool(settings.static_pod_url)
    )
    merge = Merge()
    unread = UnreadPods(merge, pods, cache, queries.record)
    active = ActivePods(pods, queries, statuses)
    remains = Remains(pods, queries, unread, statuses.is_reported)

    # -- what pods have been given --------------------------------------------------------------
    rules = _runtime_settings(settings, machine, root)
    allocated = ResourceState(root / "allocated_pods_state")
    actuated = ResourceState(root / "actuated_pods_state")
    allocations = AllocationManager(
        allocated,
        recorder,
        clock,
        rules=ResizeRules.from_settings(settings, lambda pod, c: has_swap(pod, c, rules)),
        metrics=metrics.resizes,
        judge=signals.fits,
        current=pods.get,
        sync=signals.pod_changed,
        sources_ready=sources.all,
        decided=lambda uid, decisions: history.add(uid, decisions, clock.now()),
    )

    # -- volumes, and what else containers find -------------------------------------------------
    node_allocatable = allocatable(capacity(facts, options), options)
    objects, tokens = WatchedObjects(kube_api, rng=rng), PodTokens(kube_api, clock, rng=rng)
    objects.on_change(signals.pod_changed)
    tokens.on_due(signals.pod_changed)
    services = ServiceList(kube_api, rng=rng) if kube_api is not None else None
    csi: Csi | None = None
    plugins: PluginManager | None = None
    if outside.plugins is not None:
        csi = Csi(root, node_name, kube_api, tokens, metrics.csi, rng=rng)
        csi.writer.on_ready(signals.node_changed)
        plugins = PluginManager(
            root / "plugins_registry",
            {CSI: csi.handler},
            outside.plugins,
            metrics.plugins,
        )
    kinds: list[VolumePlugin] = [LocalPlugin(root), HostPathPlugin(root), NfsPlugin(root)]
    if csi is not None:
        kinds.append(csi.plugin)
    claims = ClaimVolumes(
        kube_api,
        kinds,
        recorder,
        clock,
        node_name=node_name,
        node=lambda: signals.newest_node() or {},
        objects=WatchedObjects(kube_api, rng=rng, keep=kept, read_when_forbidden=True),
        metrics=metrics.volumes,
        changed=signals.pod_changed,
        in_use_changed=signals.node_changed,
    )
    volumes = NodeVolumes(
        pods_dir,
        objects,
        tokens,
        recorder,
        clock,
        allocatable=node_allocatable,
        metrics=metrics.volumes,
        claims=claims,
    )
    environment = ContainerEnvironment(
        pods_dir,
        objects,
        # static pods start without an API, and so without services
        services=None
        if services is None
        else lambda pod: services.of_namespace(pod.namespace, wait=not pod.is_static),
        host_ips=machine.node_ips,
        allocatable=node_allocatable,
    )
    recursive_read_only = _handlers_with(info, "recursiveReadOnlyMounts")
    handlers = RuntimeClassHandlers(kube_api)
    mounts = ContainerMounts(
        pods_dir,
        cluster_domain=settings.cluster_domain,
        features=mount_features(info.name, info.version, recursive_read_only),
        handler=handlers.handler,
    )

    directories = PodDirectories(
        pods_dir,
        release=volumes.release_orphan,
        again=signals.look_again,
        swept=metrics.pods.orphan_directories,
        wanted=remains.needs_directory,
    )
    cgroups: PodCgroups | None = None
    cgroup_parent: Callable[[Pod], str] = _no_parent
    pod_limits: PodCgroupLimits = NoPodCgroupLimits()
    if isinstance(machine.cgroups, CgroupTree):
        cgroups = PodCgroups(
            machine.cgroups,
            recorder,
            metrics.node,
            node_name=node_name,
            active_pods=lambda: [allocations.allocated(pod) for pod in active()],
            in_use=remains.may_run,
            has_volumes=directories.has_volumes,
        )
        cgroup_parent, pod_limits = cgroups.parent, KernelPodLimits(machine.cgroups, cgroups)
    elif machine.cgroups is not None:
        cgroup_parent, pod_limits = machine.cgroups.parent, machine.cgroups
    user_namespaces = UserNamespaces(
        pods_dir,
        supporting=_handlers_with(info, "userNamespaces"),
        max_pods=settings.max_pods,
        ids_per_pod=settings.user_namespaces.ids_per_pod,
        owned=subordinate_ids(),
    )

    # -- the runtime ----------------------------------------------------------------------------
    records = pull_records(settings, root, outside.images, clock, metrics.pull_records)
    providers: Plugins | None = None
    if flags.image_credential_provider_config or flags.image_credential_provider_bin_dir:
        # most nodes have none, and start without loading this
        from kubeletpy.images.providers.from_flags import make

        accounts = ClusterAccounts(kube_api, tokens)
        providers = make(settings, flags, accounts, metrics.credential_providers)
    images = ImageManager(
        outside.images,
        recorder,
        clock,
        metrics.images,
        settings=PullSettings.from_settings(settings),
        node_credentials=NodeCredentials(default_paths(root, Path.home())),
        providers=providers,
        records=records,
        pull_times=starts,
    )
    runtime = KubeRuntimeManager(
        outside.runtime,
        images,
        recorder,
        clock,
        metrics.starts,
        root_dir=str(root),
        settings=rules,
        # what containers are made with besides their spec, in this order
        providers=(environment, mounts),
        runtime_handler=user_namespaces.checked(handlers.handler),
        cgroup_parent=cgroup_parent,
        user_namespace=user_namespaces.of,
        host_dns=lambda: host_dns(settings.resolv_conf),
        hooks=LifecycleHookRunner(outside.runtime, recorder, metrics.hooks, machine.node_ips),
        actuated=actuated,
        pod_limits=pod_limits,
        runtime_name=info.name,
        max_crash_loop_delay=settings.crash_loop_back_off.max_container_restart_period,
        concurrent_starts=machine.concurrent_starts,
        gc_policy=GCPolicy.from_flags(flags),
    )
    monitor = RuntimeMonitor(runtime, signals.node_changed)

    # -- a pod's worker -------------------------------------------------------------------------
    probes = KubeProbeManager(
        Prober(outside.runtime, recorder),
        clock=clock,
        get_status=statuses.get_status,
        on_result=signals.probe_settled,
        metrics=metrics.probes,
        agent_started_at=started_at,
        rng=rng,
    )
    composer = StatusComposer(
        statuses,
        cache,
        recorder,
        clock,
        probes=probes,
        reasons=reasons,
        resizes=allocations,
        actuated=actuated,
        runtime_name=runtime.runtime_name,
        recursive_read_only=recursive_read_only,
        host_ips=machine.node_ips,
        agent_started_at=started_at,
        looked_at=starts.looked_at,
        metrics=metrics.workers,
    )
    node: NodeManager | None = None
    mirrors: ApiMirrorKeeper | None = None
    lease: LeaseKeeper | None = None
    if api is not None:
        node = own = NodeManager(
            api.heartbeats,
            clock,
            options,
            facts,
            node_ips=machine.node_ips,
            recorder=recorder,
            health=signals.node_health,
            runtime_info=lambda: info,
            list_images=lambda: image_summaries(outside.images),
            startup=NodeStartup(
                metrics.node,
                clock,
                booted_at=machine.booted_at,
                started_at=started_at if machine.started_at is None else machine.started_at,
            ),
            newest=signals.newest_node,
            answered=signals.node_answered,
            volumes_in_use=claims.operations.volumes_in_use,
            rng=rng,
        )
        mirrors = ApiMirrorKeeper(
            api.pods,
            node_name,
            lambda: own.uid or None,
            wanted=lambda pod: pods.current(pod.uid) is not None,
            rng=rng,
        )
        lease = LeaseKeeper(
            api.heartbeats,
            clock,
            node_name,
            options.lease_duration_s,
            node_uid=lambda: own.uid,
            rng=rng,
        )
    steps: list[SyncStep | None] = [
        NetworkGate(monitor.network_error, recorder),
        PodCgroup(cgroups, runtime, cache, recorder) if cgroups is not None else None,
        MirrorPod(mirrors) if mirrors is not None else None,
        Directories(pods_dir, recorder),
        Volumes(volumes, recorder),
        PullSecrets(kube_api, recorder),
        Probes(probes),
        RuntimeSync(
            runtime,
            composer,
            cache,
            probes=probes,
            reasons=reasons,
            resizes=allocations,
            is_reported=statuses.is_reported,
            decided=lambda uid, decisions: history.add(uid, decisions, clock.now()),
        ),
    ]
    syncer = KubePodSyncer(
        [step for step in steps if step is not None],
        composer,
        runtime,
        cache,
        probes=probes,
        recorder=recorder,
        clock=clock,
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
    )

    # -- what moves the workers -----------------------------------------------------------------
    own_node = OwnNode(
        node_name,
        kube_api,
        recorder,
        initial=_initial_node(options, outside),
        written=lambda: node.node if node is not None else None,
        shown=signals.node_shown,
        rng=rng,
    )
    shutdown = ShutdownManager(
        periods_of(settings),
        connect=SystemLogind.connect,
        pods=active,
        kill=workers.kill_pod,
        is_finished=queries.should_be_finished,
        changed=signals.shutdown_changed,
        observe=metrics.node.shutdown_observed,
        recorder=recorder,
        clock=clock,
        node_name=node_name,
        root_dir=root,
    )
    node_state = NodeState(
        allowed_unsafe_sysctls=settings.allowed_unsafe_sysctls,
        kernel_version=facts.kernel_version,
        apparmor=machine.kernel.apparmor,
        pod_level_resources=gates.enabled("PodLevelResources"),
        declared_features=options.declared_features
        if gates.enabled("NodeDeclaredFeatures")
        else None,
    )
    gate = AdmissionGate(
        lambda: replace(
            node_state, shutting_down=shutdown.shutting_down, pressures=signals.pressures()
        ),
        recorder,
        clock,
        metrics.workers,
        node=own_node.current,
        newest_node=own_node.newest,
        kill=workers.kill_pod,
    )
    pleg = Pleg(runtime, cache, clock, signals.runtime_changed, metrics=metrics.pleg)
    stream = EventStream(
        outside.runtime,
        runtime.event_to_status,
        cache,
        pleg,
        clock=clock,
        on_change=signals.runtime_changed,
        rng=rng,
    )
    early_looks = EarlyLooks(outside.runtime, cache, pleg, pods.current)
    dead = DeadContainers(runtime, cache, remains.removable, statuses.is_reported)
    health = AgentHealth(
        monitor,
        pleg,
        cache,
        shutdown,
        pressures=signals.pressures,
        storage=lambda: csi.writer.problem if csi is not None else "",
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
    )
    source_tasks = _source_tasks(settings, kube_api, loop, own_node, rng)

    # -- what looks after the node --------------------------------------------------------------
    upkeep = Upkeep(
        runtime,
        ImageGarbageCollector(
            outside.images,
            outside.runtime,
            recorder,
            clock,
            metrics.images,
            node_name=node_name,
            policy=ImageGCPolicy.from_settings(settings),
            on_remaining=records.prune if records is not None else None,
        ),
        recorder,
        node_name=node_name,
        all_sources_ready=sources.all,
        removable=remains.removable,
        reported=statuses.is_reported,
        ended=queries.is_known_terminated,
    )
    local_storage = None
    if settings.local_storage_capacity_isolation:
        local_storage = LocalStorageKeeper(
            StorageMeter.from_settings(
                settings,
                clock,
                outside.runtime,
                outside.images,
                root_dir=str(root),
                pods=pods,
                cache=cache,
                at_least_every=PERIOD_S,
            ),
            pod=pods.get,
            is_over=queries.is_known_terminated,
            kill=workers.kill_pod,
            recorder=recorder,
            evicted=lambda signal: metrics.workers.evictions.labels(signal).inc(),
        )
    pressure_rules = from_settings(
        settings, ignore_allocatable=flags.experimental_allocatable_ignore_eviction
    )
    pressure: NodePressureKeeper | None = None
    if machine.signals is not None and pressure_rules.thresholds:
        pressure = NodePressureKeeper(
            pressure_rules,
            machine.signals,
            machine.uses
            or CollectedUses(
                make_collector(
                    settings,
                    clock,
                    runtime=outside.runtime,
                    images=outside.images,
                    pods=pods,
                    cache=cache,
                    tree=machine.cgroups if isinstance(machine.cgroups, CgroupTree) else None,
                    root_dir=str(root),
                    disks=DiskMeter(clock, PERIOD_S, patient=True),
                )
            ),
            pods=lambda: [allocations.allocated(pod) for pod in active()],
            kill=workers.kill_pod,
            is_over=queries.should_be_finished,
            reclaim=upkeep.reclaim,
            changed=signals.node_changed,
            recorder=recorder,
            clock=clock,
            node_name=node_name,
            evicted=lambda signal: metrics.workers.evictions.labels(signal).inc(),
            aged=lambda signal, seconds: metrics.workers.eviction_stats_age.labels(signal).observe(
                seconds
            ),
            others_end=lambda: local_storage is not None and local_storage.busy,
        )
    rotator = LogRotator(
        outside.runtime,
        cache,
        settings.pod_logs_dir,
        RotationSettings.from_settings(settings),
        clock,
    )
    snapshots = Snapshots(
        pods,
        workers,
        queries,
        statuses,
        cache=cache,
        reasons=reasons,
        probes=probes,
        clock=clock,
        runtime_error=health.runtime_error,
        network_error=monitor.network_error,
        awaits_admission=loop.awaits_admission,
    )
    stuck_pods = StuckPods(snapshots.ending, snapshots.facts, recorder)
    scrape = Scrape(metrics, pods, cache)

    # -- what is served -------------------------------------------------------------------------
    loop_health = SyncLoopHealth(loop, settings.sync_frequency)
    health_server = None
    if outside.sockets and settings.healthz_port:
        health_server = HealthServer(
            settings.healthz_bind_address,
            settings.healthz_port,
            checks=metrics.health.counted(
                {
                    "ping": lambda: "",
                    "runtime": monitor.runtime_error,
                    "syncloop": loop_health.error,
                }
            ),
            render_metrics=lambda: (scrape.render(), CONTENT_TYPE),
            render_probe_metrics=lambda: (metrics.render_probes(), CONTENT_TYPE),
        )
    explain = ExplainServer(root / SOCKET_NAME, snapshots, traces) if outside.sockets else None
    certificate = None
    if outside.ports is not None and comes_from_cluster(settings):
        certificate = ServingCertificate(
            settings,
            flags,
            kube_api,
            clock,
            node_name=node_name,
            node=lambda: node.node if node is not None else None,
            metrics=metrics.certificates,
            rng=rng,
        )
    collector = server = None
    if outside.ports is not None:
        collector = make_collector(
            settings,
            clock,
            runtime=outside.runtime,
            images=outside.images,
            pods=pods,
            cache=cache,
            tree=machine.cgroups if isinstance(machine.cgroups, CgroupTree) else None,
            root_dir=str(root),
            runtime_cgroups=flags.runtime_cgroups,
        )
        from_runtime = gates.enabled("PodAndContainerStatsFromCRI")
        view = NodeView(
            node_name=node_name,
            pods=pods,
            cache=cache,
            runtime=outside.runtime,
            status_of=statuses.get_status,
            checks=metrics.health.counted(
                {"ping": lambda: "", "log": log_problem, "syncloop": loop_health.error}
            ),
            render_metrics=scrape.render,
            render_probe_metrics=metrics.render_probes,
            configz=lambda: document(settings),
            pod_logs_dir=settings.pod_logs_dir,
            stats=StatsViews(
                collector,
                node_name,
                read_machine(facts),
                from_runtime=outside.runtime if from_runtime else None,
                provider=metrics.http.metrics_come_from,
            ),
            render_slis=metrics.render_slis,
        )
        server = KubeletServer(
            outside.ports,
            view,
            api.reviews if api is not None else None,
            metrics=metrics.http,
            clock=clock,
            node_ips=machine.node_ips,
            serving_pair=certificate.in_use if certificate is not None else None,
            program=Program(
                flags=flag_texts(settings, flags), started_at=started_at, version=options.version
            ),
        )

    # -- who hears what, in this order ----------------------------------------------------------
    signals.pod_changed.connect(loop.sync_pod)
    signals.pod_shown.connect(starts.shown, statuses.reconcile)
    signals.runtime_changed.connect(loop.runtime_changed)
    signals.probe_settled.connect(loop.probe_settled)
    signals.pod_finished.connect(
        lambda uid: upkeep.collect_soon(),
        # also of a pod that came and went between two passes: nothing else tells that it was there
        lambda uid: housekeeping.tell_again(),
        loop.housekeeping_soon,
        lambda uid: shutdown.pod_finished(),
        *([pressure.pod_finished] if pressure is not None else ()),
    )
    signals.pressures.connect(lambda: pressure.conditions if pressure is not None else ())
    signals.look_again.connect(housekeeping.tell_again)
    if node is not None:
        signals.node_changed.connect(node.poke)
    signals.shutdown_changed.connect(
        lambda: runtime.hurry(shutdown.shutting_down), signals.node_changed
    )
    signals.node_shown.connect(claims.node_changed)
    signals.node_answered.connect(
        claims.node_changed,
        *([certificate.node_changed] if certificate is not None else []),
        *([csi.writer.node_answered] if csi is not None else []),
    )
    signals.node_health.connect(health.node_health)
    signals.newest_node.connect(own_node.current)
    signals.fits.connect(lambda pod: gate.fits(pod, loop.admitted_pods(but=pod.uid)))
    cache.subscribe(early_looks.changed)
    if outside.on_connection is not None:
        outside.on_connection(monitor.connection_changed)

    # -- the rooms, from the cellar up: started in this order, closed in the opposite one ---------
    async def announce() -> None:
        recorder.event(node_reference(node_name), NORMAL, Reason.STARTING, "Starting kubelet.")

    metrics.node.node_name.labels(node_name).set(1)
    rooms = [
        Room(outside, tuple(outside.credentials)),
        Room(writer, (Task("events", writer.run),)) if writer is not None else None,
        Room(recorder, start=announce),
        Room(pods),
        Room(queries),
        Room(cache),
        Room(reasons),
        Room(scrape),
        Room(starts, keep=lambda found: starts.forget_except(found.desired)),
        Room(statuses, close=statuses.close),
        Room(actuated, keep=lambda found: actuated.keep(found.known), close=actuated.close),
        Room(allocated, close=allocated.close),
        Room(
            allocations,
            keep=lambda found: allocations.keep(found.desired),
            close=allocations.close,
        ),
        Room(objects, close=objects.close),
        Room(
            claims,
            (Task("volumes", claims.run),),
            keep=lambda found: claims.pods_known(),
            close=claims.close,
        ),
        Room(tokens, close=tokens.close),
        Room(services, (Task("services", services.run),)) if services is not None else None,
        Room(
            csi,
            (Task("csi-drivers", csi.objects.run), Task("csi-node", csi.writer.run)),
            close=csi.close,
        )
        if csi is not None
        else None,
        Room(plugins, (Task("plugins", plugins.run),)) if plugins is not None else None,
        Room(
            directories,
            keep=lambda found: directories.sweep_soon(found.known),
            close=directories.close,
        ),
        Room(
            cgroups,
            (Task("cgroups", cgroups.run),),
            keep=lambda found: cgroups.sweep_soon(),
            close=cgroups.close,
        )
        if cgroups is not None
        else None,
        Room(
            user_namespaces,
            start=lambda: mend(user_namespaces, outside.runtime),
            keep=lambda found: user_namespaces.keep(found.known),
        ),
        Room(records, start=records.start, close=records.close) if records is not None else None,
        Room(providers, close=providers.close) if providers is not None else None,
        Room(runtime, close=lambda: runtime.drain(DRAIN_S)),
        Room(monitor, (Task("runtime-monitor", monitor.run),), start=monitor.check),
        Room(
            probes,
            keep=lambda found: probes.forget_except(found.possibly_running),
            close=probes.close,
        ),
        Room(mirrors, close=mirrors.close) if mirrors is not None else None,
        Room(workers, close=workers.close),
        Room(pleg, (Task("pleg", pleg.run),)),
        Room(stream, (Task("runtime-events", stream.run),)),
        Room(early_looks, close=early_looks.close),
        Room(dead, (Task("dead-containers", dead.run),)),
        Room(gate, close=gate.close),
        Room(loop, (Task("sync-loop", loop.run),)),
        Room(sources, tuple(source_tasks)),
        Room(shutdown, (Task("node-shutdown", shutdown.run),) if shutdown.enabled else ()),
        Room(
            upkeep,
            (
                Task("container-gc", upkeep.collect_containers),
                Task("image-gc", upkeep.collect_images),
            ),
        ),
        Room(
            local_storage,
            (Task("local-storage", local_storage.run),),
            keep=lambda found: local_storage.pods_changed(found.possibly_running),
        )
        if local_storage is not None
        else None,
        Room(pressure, (Task("node-pressure", pressure.run),), close=pressure.close)
        if pressure is not None
        else None,
        Room(rotator, (Task("log-rotation", rotator.run),)),
        Room(stuck_pods, (Task("stuck-pods", stuck_pods.run),)),
        Room(
            node,
            (
                Task("node", node.run),
                Task("own-node", own_node.run),
                Task("node-lease", after(node.registered, lease.run)),
                Task("static-pods-mirrors", after(node.registered, loop.sync_static_pods)),
            ),
        )
        if node is not None and lease is not None
        else None,
        Room(
            certificate,
            (Task("serving-certificate", certificate.run),) if api is not None else (),
            start=certificate.start,
        )
        if certificate is not None
        else None,
        Room(health_server, start=health_server.start, close=health_server.close)
        if health_server is not None
        else None,
        Room(collector, close=collector.close) if collector is not None else None,
        Room(server, start=server.start, close=server.close) if server is not None else None,
        Room(explain, start=explain.start, close=explain.close) if explain is not None else None,
    ]
    there = [room for room in rooms if room is not None]
    signals.pods_counted.connect(*(room.keep for room in there if room.keep is not None))
    return Agent(there)


def _source_tasks(
    settings: KubeletSettings,
    kube_api: KubeApi | None,
    loop: SyncLoop,
    own_node: OwnNode,
    rng: random.Random,
) -> Iterator[Task]:
    """Where pods come from, each a task of its own."""
    name = own_node.name
    if kube_api is not None:
        api_source = ApiSource(kube_api, name, loop, rng=rng)

        async def follow() -> None:
            # the pods that run are admitted anew: not before the node's labels and taints are known
            await own_node.known(within=NODE_KNOWN_S)
            await api_source.run()

        yield Task(f"source-{SOURCE_API}", follow)
    if settings.static_pod_path:
        files = FileSource(
            Path(settings.static_pod_path),
            name,
            loop,
            check_frequency=settings.file_check_frequency,
        )
        yield Task(f"source-{SOURCE_FILE}", files.run)
    if settings.static_pod_url:
        url = HttpSource(
            settings.static_pod_url,
            name,
            loop,
            headers=dict(settings.static_pod_url_header),
            check_frequency=settings.http_check_frequency,
        )
        yield Task(f"source-{SOURCE_HTTP}", url.run)


def _runtime_settings(settings: KubeletSettings, machine: Machine, root: Path) -> RuntimeSettings:
    """What settings and machine say about sandboxes and containers."""
    facts, kernel = machine.facts, machine.kernel
    return RuntimeSettings(
        pod_logs_dir=settings.pod_logs_dir,
        container_logs_dir=machine.container_logs_dir,
        seccomp_root=str(root / "seccomp"),
        seccomp_default=settings.seccomp_default,
        cluster_domain=settings.cluster_domain,
        cluster_dns=settings.cluster_dns,
        node_ips=tuple(machine.node_ips),
        cpu_cfs_quota=settings.cpu_cfs_quota,
        cpu_cfs_period_us=round(settings.cpu_cfs_quota_period * 1_000_000),
        memory_capacity=facts.memory_bytes,
        swap_capacity=facts.swap_bytes,
        limited_swap=settings.memory_swap.swap_behavior == "LimitedSwap",
        single_process_oom_kill=bool(settings.single_process_oom_kill),
        cgroup_v2=kernel.cgroup_v2,
        swap_controller=kernel.swap_controller,
        hugepage_sizes=kernel.hugepage_sizes,
        thermal_throttle_paths=kernel.thermal_throttle_paths,
        stop_signals=settings.feature_gates.enabled("ContainerStopSignals"),
    )


def _initial_node(options: NodeOptions, outside: Outside) -> api_types.Node:
    """The node as it would be registered now."""
    facts = outside.machine.facts
    status = node_status(
        facts,
        options,
        outside.runtime_info,
        node_ips=outside.machine.node_ips,
        hostname=facts.hostname,
        images=(),
        health=NodeHealth(),
        old={},
        now=outside.clock.now(),
    )
    return new_node(options, facts.hostname, facts.architecture, status)


def _handlers_with(info: RuntimeInfo, feature: str) -> frozenset[str]:
    """Runtime handlers that say that they have a feature; "" is the default one."""
    return frozenset(
        handler.get("name") or ""
        for handler in info.handlers
        if (handler.get("features") or {}).get(feature)
    )


def _no_parent(pod: Pod) -> str:
    return ""

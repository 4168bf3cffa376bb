"""The composition root: what is made of what, in order, who hears what, and which tasks run.

One function, read from top to bottom. An object is made by its constructor, from what stands above
it; ``rooms`` then says what the agent has to know of it: its tasks, how it starts and ends. The few
wires that go round in a circle are signals, connected below the last room that hears them. What
nothing else is made of has a page of its own: :mod:`.storage`, :mod:`.pod_sources`,
:mod:`.eviction`, :mod:`.served`. Must never decide anything about a pod.

A new room is made where what it needs is there, and added to ``rooms`` next to it; a new capability
of a pod gets an entry in ``steps``. Rooms are started and their tasks created in the order of
``rooms``, and closed in the opposite one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.admission.declared_features import declared
from kubeletpy.admission.facts import NodeState
from kubeletpy.agent.agent import Agent
from kubeletpy.agent.claims import build_claims
from kubeletpy.agent.devices import build_devices, pod_resources
from kubeletpy.agent.eviction import build_eviction
from kubeletpy.agent.guards import build_guards
from kubeletpy.agent.health import AgentHealth
from kubeletpy.agent.outside import Outside
from kubeletpy.agent.placement import build_placement
from kubeletpy.agent.pod_sources import expected_sources, source_tasks
from kubeletpy.agent.room import Room, Task, after
from kubeletpy.agent.runtime_settings import runtime_settings
from kubeletpy.agent.scrape import Scrape
from kubeletpy.agent.served import served
from kubeletpy.agent.signals import Signals
from kubeletpy.agent.storage import build_storage
from kubeletpy.agent.upkeep import Upkeep
from kubeletpy.allocation.checkpoint import ResourceState
from kubeletpy.allocation.feasibility import ResizeRules
from kubeletpy.allocation.manager import AllocationManager
from kubeletpy.cgroups.limits import KernelPodLimits
from kubeletpy.cgroups.manager import PodCgroups
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.devices.registry import DevicePluginHandler
from kubeletpy.events.log_recorder import LogRecorder
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import (
    NORMAL,
    WARNING,
    AnnotatingRecorder,
    node_reference,
    pod_reference,
)
from kubeletpy.explain.snapshot import Snapshots
from kubeletpy.explain.stuck import StuckPods
from kubeletpy.images.ages import ImageAges
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.images.gc_selection import ImageGCPolicy, image_volumes
from kubeletpy.images.manager import ImageManager
from kubeletpy.images.node_credentials import NodeCredentials, default_paths
from kubeletpy.images.puller import PullSettings
from kubeletpy.images.records.from_settings import pull_records
from kubeletpy.kubeapi.events import EventWriter
from kubeletpy.node.build import initial_node
from kubeletpy.node.images import image_summaries
from kubeletpy.node.lease import LeaseKeeper
from kubeletpy.node.manager import NodeManager
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.own_node import OwnNode
from kubeletpy.node.runtime_classes import RuntimeClassHandlers
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.node.startup import NodeStartup
from kubeletpy.plugins.model import DEVICE, DRA
from kubeletpy.pods.pod import Pod
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
from kubeletpy.podworkers.steps.claims import Claims
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
from kubeletpy.runtime_manager.manager import KubeRuntimeManager
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.pod_limits import NoPodCgroupLimits, PodCgroupLimits
from kubeletpy.runtime_manager.read.host_dns import host_dns
from kubeletpy.server.certificate import ServingCertificate, comes_from_cluster
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from kubeletpy.shutdown.logind import SystemLogind
from kubeletpy.shutdown.manager import ShutdownManager
from kubeletpy.shutdown.plan import periods_of
from kubeletpy.stats.build import make_collector
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
from kubeletpy.syncloop.unread import UnreadPods
from kubeletpy.trace.spans import Traces
from kubeletpy.volumes.container_mounts import ContainerMounts
from kubeletpy.volumes.runtime_features import mount_features

if TYPE_CHECKING:
    from kubeletpy.images.providers.plugins import Plugins

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
    rooms = [Room(outside, tuple(outside.credentials))]

    # -- what everybody knows: the pods, what runs of them, what is said of them ----------------
    options = NodeOptions.from_settings(
        settings,
        flags,
        hostname=facts.hostname,
        port=settings.port if outside.ports is None else outside.ports.port,
        declared_features=declared(gates.effective),
    )
    node_name = options.name
    metrics.node.node_name.labels(node_name).set(1)
    recorder: AnnotatingRecorder = LogRecorder()
    if api is not None:
        recorder = writer = EventWriter(api.events, clock, node_name, rng=rng)
        rooms.append(Room(writer, (Task("events", writer.run),)))

    async def announce() -> None:
        recorder.event(node_reference(node_name), NORMAL, Reason.STARTING, "Starting kubelet.")

    rooms.append(Room(recorder, start=announce))
    rooms += build_guards(settings, flags, outside, recorder, node_name=node_name)
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
    sources = expected_sources(settings, kube_api)
    merge = Merge()
    unread = UnreadPods(merge, pods, cache, queries.record)
    active = ActivePods(pods, queries, statuses)
    remains = Remains(pods, queries, unread, statuses.is_reported)
    scrape = Scrape(metrics, pods, cache)
    rooms += [
        Room(pods),
        Room(queries),
        Room(cache),
        Room(reasons),
        Room(scrape),
        Room(starts, keep=lambda found: starts.forget_except(found.desired)),
        Room(statuses, close=statuses.close),
    ]

    # -- what pods have been given --------------------------------------------------------------
    rules = runtime_settings(settings, machine, root)
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
    rooms += [
        Room(actuated, keep=lambda found: actuated.keep(found.known), close=actuated.close),
        Room(allocated, close=allocated.close),
        Room(
            allocations,
            keep=lambda found: allocations.keep(found.desired),
            close=allocations.close,
        ),
    ]

    devices, device_room = build_devices(
        flags,
        outside,
        signals,
        cache,
        nodes=(0,),
        is_active=lambda uid: any(pod.uid == uid for pod in active()),
    )
    rooms.append(device_room)

    # -- volumes, and what else containers find -------------------------------------------------
    claims = build_claims(outside, signals, root=root, node_name=node_name)
    storage = build_storage(
        outside,
        options,
        recorder,
        signals,
        root=root,
        settings=settings,
        pod=pods.get,
        plugins={DRA: claims.drivers, DEVICE: DevicePluginHandler(devices)},
    )
    rooms += [*claims.rooms, *storage.rooms]
    recursive_read_only = info.handlers_with("recursiveReadOnlyMounts")
    handlers = RuntimeClassHandlers(kube_api)
    mounts = ContainerMounts(
        pods_dir,
        cluster_domain=settings.cluster_domain,
        features=mount_features(info.name, info.version, recursive_read_only),
        handler=handlers.handler,
    )

    def users() -> frozenset[str] | None:
        """The pods that use the node; those that are gone from it and still run, too."""
        if not (sources.all() and cache.populated):
            return None
        return cache.running().union(pod.uid for pod in active())

    placement = build_placement(
        settings,
        outside,
        root,
        cache,
        users=users,
        decided=lambda uid, decisions: history.add(uid, decisions, clock.now()),
    )
    rooms += placement.rooms
    directories = PodDirectories(
        pods_dir,
        release=storage.volumes.release_orphan,
        again=signals.look_again,
        swept=metrics.pods.orphan_directories,
        wanted=remains.needs_directory,
    )
    rooms.append(
        Room(
            directories,
            keep=lambda found: directories.sweep_soon(found.known),
            close=directories.close,
        )
    )
    tree: CgroupTree | None = None
    pod_cgroups: PodCgroups | None = None
    cgroup_parent: Callable[[Pod], str] = _no_parent
    pod_limits: PodCgroupLimits = NoPodCgroupLimits()
    if isinstance(machine.cgroups, CgroupTree):
        tree = machine.cgroups
        tree.has_no_quota = placement.cpus.has_exclusive
        pod_cgroups = cgroups = PodCgroups(
            tree,
            recorder,
            metrics.node,
            node_name=node_name,
            active_pods=lambda: [allocations.allocated(pod) for pod in active()],
            in_use=remains.may_run,
            has_volumes=directories.has_volumes,
        )
        cgroup_parent, pod_limits = cgroups.parent, KernelPodLimits(tree, cgroups)
        rooms.append(
            Room(
                cgroups,
                (Task("cgroups", cgroups.run),),
                keep=lambda found: cgroups.sweep_soon(),
                close=cgroups.close,
            )
        )
    elif machine.cgroups is not None:
        cgroup_parent, pod_limits = machine.cgroups.parent, machine.cgroups
    user_namespaces = UserNamespaces(
        pods_dir,
        supporting=info.handlers_with("userNamespaces"),
        max_pods=settings.max_pods,
        ids_per_pod=settings.user_namespaces.ids_per_pod,
        owned=subordinate_ids(),
    )
    rooms.append(
        Room(
            user_namespaces,
            start=lambda: mend(user_namespaces, outside.runtime),
            keep=lambda found: user_namespaces.keep(found.known),
        )
    )

    # -- the runtime ----------------------------------------------------------------------------
    records = pull_records(settings, root, outside.images, clock, metrics.pull_records)
    if records is not None:
        rooms.append(Room(records, start=records.start, close=records.close))
    providers: Plugins | None = None
    if flags.image_credential_provider_config or flags.image_credential_provider_bin_dir:
        # most nodes have none, and start without loading this
        from kubeletpy.images.providers.from_flags import make
        from kubeletpy.volumes.service_accounts import ClusterAccounts

        accounts = ClusterAccounts(kube_api, storage.tokens)
        providers = make(settings, flags, accounts, metrics.credential_providers)
        rooms.append(Room(providers, close=providers.close))
    image_gc = ImageGarbageCollector(
        outside.images,
        outside.runtime,
        recorder,
        clock,
        metrics.images,
        node_name=node_name,
        policy=ImageGCPolicy.from_settings(settings),
        on_remaining=records.prune if records is not None else None,
        ages=ImageAges(root),
        volumes=lambda: image_volumes(pods.pods()),
    )
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
        pulled=image_gc.pulled,
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
        providers=(storage.environment, mounts, claims.manager, devices, *placement.providers),
        runtime_handler=user_namespaces.checked(handlers.handler),
        cgroup_parent=cgroup_parent,
        user_namespace=user_namespaces.of,
        host_dns=lambda: host_dns(settings.resolv_conf),
        hooks=LifecycleHookRunner(outside.runtime, recorder, metrics.hooks, machine.node_ips),
        actuated=actuated,
        pod_limits=pod_limits,
        placement=placement.cpus.placement,
        runtime_name=info.name,
        max_crash_loop_delay=settings.crash_loop_back_off.max_container_restart_period,
        concurrent_starts=machine.concurrent_starts,
        gc_policy=GCPolicy.from_flags(flags),
    )
    monitor = RuntimeMonitor(runtime, signals.node_changed)
    rooms += [
        Room(runtime, close=lambda: runtime.drain(DRAIN_S)),
        Room(monitor, (Task("runtime-monitor", monitor.run),), start=monitor.check),
    ]

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
    rooms.append(
        Room(
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
        actuated=actuated,
        runtime_name=runtime.runtime_name,
        recursive_read_only=recursive_read_only,
        host_ips=machine.node_ips,
        agent_started_at=started_at,
        looked_at=starts.looked_at,
        holds_claims=claims.manager.holds,
        device_health=devices.resources_status
        if gates.enabled("ResourceHealthStatus")
        else lambda uid: {},
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
            volumes_in_use=storage.claims.operations.volumes_in_use,
            devices=devices.counts,
            rng=rng,
        )
        mirrors = ApiMirrorKeeper(
            api.pods,
            node_name,
            lambda: own.uid or None,
            wanted=lambda pod: pods.current(pod.uid) is not None,
            rng=rng,
        )
        rooms.append(Room(mirrors, close=mirrors.close))
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
        PodCgroup(pod_cgroups, runtime, cache, recorder) if pod_cgroups is not None else None,
        MirrorPod(mirrors) if mirrors is not None else None,
        Directories(pods_dir, recorder),
        Volumes(storage.volumes, recorder),
        PullSecrets(kube_api, recorder),
        Claims(claims.manager, recorder, clock),
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
    rooms.append(Room(workers, close=workers.close))

    # -- what moves the workers -----------------------------------------------------------------
    own_node = OwnNode(
        node_name,
        kube_api,
        recorder,
        initial=initial_node(facts, options, info, node_ips=machine.node_ips, now=started_at),
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

    def state_now() -> NodeState:
        pressures = signals.pressures()
        return replace(
            node_state,
            shutting_down=shutdown.shutting_down,
            pressures=pressures,
            let_in=frozenset(cache) if pressures else frozenset(),
        )

    gate = AdmissionGate(
        state_now,
        recorder,
        clock,
        metrics.workers,
        node=own_node.current,
        newest_node=own_node.newest,
        kill=workers.kill_pod,
        place=placement.place,
        held=devices.held,
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
        storage=lambda: storage.csi.writer.problem if storage.csi is not None else "",
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
    rooms += [
        Room(pleg, (Task("pleg", pleg.run),)),
        Room(stream, (Task("runtime-events", stream.run),)),
        Room(early_looks, close=early_looks.close),
        Room(dead, (Task("dead-containers", dead.run),)),
        Room(gate, close=gate.close),
        Room(loop, (Task("sync-loop", loop.run),)),
        Room(sources, tuple(source_tasks(settings, kube_api, loop, own_node, rng))),
        Room(shutdown, (Task("node-shutdown", shutdown.run),) if shutdown.enabled else ()),
    ]

    # -- what looks after the node --------------------------------------------------------------
    upkeep = Upkeep(
        runtime,
        image_gc,
        recorder,
        node_name=node_name,
        all_sources_ready=sources.all,
        removable=remains.removable,
        reported=statuses.is_reported,
        ended=queries.is_known_terminated,
    )
    rooms.append(
        Room(
            upkeep,
            (
                Task("container-gc", upkeep.collect_containers),
                Task("image-gc", upkeep.collect_images),
            ),
        )
    )
    new_collector = partial(
        make_collector,
        settings,
        clock,
        runtime=outside.runtime,
        images=outside.images,
        pods=pods,
        cache=cache,
        tree=tree,
        root_dir=flags.root_dir,
        runtime_cgroups=flags.runtime_cgroups,
        claimed=storage.meter.of_pods,
    )
    eviction = build_eviction(
        settings,
        flags,
        outside,
        recorder,
        signals,
        node_name=node_name,
        pods=pods,
        running=lambda: [allocations.allocated(pod) for pod in active()],
        cache=cache,
        queries=queries,
        workers=workers,
        upkeep=upkeep,
        new_collector=lambda disks: new_collector(disks=disks),
    )
    pressure = eviction.pressure
    rooms += eviction.rooms
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
        volume_waits=storage.claims.reports,
    )
    stuck_pods = StuckPods(snapshots.ending, snapshots.facts, recorder)
    rooms += [
        Room(rotator, (Task("log-rotation", rotator.run),)),
        Room(stuck_pods, (Task("stuck-pods", stuck_pods.run),)),
    ]
    if node is not None and lease is not None:
        rooms.append(
            Room(
                node,
                (
                    Task("node", node.run),
                    Task("own-node", own_node.run),
                    Task("node-lease", after(node.registered, lease.run)),
                    Task("static-pods-mirrors", after(node.registered, loop.sync_static_pods)),
                ),
            )
        )

    # -- what is served -------------------------------------------------------------------------
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
        renewal = (Task("serving-certificate", certificate.run),) if api is not None else ()
        rooms.append(Room(certificate, renewal, start=certificate.start))
    rooms += pod_resources(
        outside,
        root,
        devices,
        cache,
        active=active,
        pods=pods.pods,
        sources_ready=sources.all,
    )
    rooms += served(
        settings,
        flags,
        outside,
        options,
        pods=pods,
        cache=cache,
        statuses=statuses,
        monitor=monitor,
        loop=loop,
        scrape=scrape,
        snapshots=snapshots,
        traces=traces,
        certificate=certificate,
        started_at=started_at,
        new_collector=new_collector,
        pressure=lambda: asdict(pressure.report()) if pressure is not None else None,
    )

    # -- who hears what, in this order ----------------------------------------------------------
    signals.pod_changed.connect(loop.sync_pod)
    signals.pod_shown.connect(starts.shown, statuses.reconcile)
    signals.runtime_changed.connect(loop.runtime_changed)
    signals.probe_settled.connect(loop.probe_settled)
    signals.pod_finished.connect(
        lambda uid: upkeep.collect_soon(),
        # also of a pod that came and went between two passes: nothing else shows that it was there
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
    # by the watch or by an answer, whichever is first: before the first status is written
    last_left = [lambda: pressure.node_shown(own_node.current())] if pressure is not None else []
    signals.node_shown.connect(*last_left, storage.claims.node_changed)
    signals.node_answered.connect(
        *last_left,
        storage.claims.node_changed,
        *([certificate.node_changed] if certificate is not None else []),
        *([storage.csi.writer.node_answered] if storage.csi is not None else []),
    )
    signals.node_health.connect(health.node_health)
    signals.newest_node.connect(own_node.current)
    signals.fits.connect(lambda pod: gate.fits(pod, loop.admitted_pods(but=pod.uid)))
    cache.subscribe(early_looks.changed)
    if outside.on_connection is not None:
        outside.on_connection(monitor.connection_changed)

    signals.pods_counted.connect(*(room.keep for room in rooms if room.keep is not None))
    return Agent(rooms)


def _no_parent(pod: Pod) -> str:
    return ""

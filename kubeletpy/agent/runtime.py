"""Builds the parts about the runtime: settings of containers, the source of changes, and images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.agent.context import BuildContext, Component, Machine, Task
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.config.gates import FeatureGates
from kubeletpy.images.gc import ImageAges, ImageGarbageCollector
from kubeletpy.images.gc_selection import ImageGCPolicy, pod_images
from kubeletpy.images.image_manager import ImageManager, PullSettings
from kubeletpy.images.pod_credentials import NodeCredentials, default_paths
from kubeletpy.images.progress import PullMonitor
from kubeletpy.images.records.ledger import pull_records
from kubeletpy.images.uses import ImageUses
from kubeletpy.kubeapi.events.writer import KeptEvents
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE as MEMORY_VOLUMES
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.probes.prober import Prober
from kubeletpy.resources.cgroups.setup import memory_qos
from kubeletpy.resources.cgroups.values import unreserved_memory
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.plan.crash_loop import BASE_SECONDS, REDUCED_BASE_SECONDS
from kubeletpy.syncloop.event_stream import EarlyPolls, EventStream
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.pleg import Pleg, RelistHealth
from kubeletpy.volumes.projected.tokens import PodTokens

if TYPE_CHECKING:
    from kubeletpy.images.providers.provider import Plugins


def runtime_settings(
    settings: KubeletSettings,
    flags: NodeFlags,
    machine: Machine,
    root: Path,
    host_ips: Sequence[str] = (),
) -> RuntimeSettings:
    """Those of this agent.

    Args:
        root: the kubelet's root directory.
        host_ips: the node's addresses, which may change while it runs.
    """
    facts, kernel, gates = machine.facts, machine.kernel, settings.feature_gates
    return RuntimeSettings(
        pod_logs_dir=settings.pod_logs_dir,
        container_logs_dir=machine.container_logs_dir,
        seccomp_root=str(root / "seccomp"),
        seccomp_default=settings.seccomp_default,
        cluster_domain=settings.cluster_domain,
        cluster_dns=settings.cluster_dns,
        no_cluster_dns=flags.no_cluster_dns,
        node_ips=host_ips,
        cpu_cfs_quota=settings.cpu_cfs_quota,
        cpu_cfs_period_us=round(settings.cpu_cfs_quota_period * 1_000_000),
        memory_capacity=facts.memory_bytes,
        swap_capacity=facts.swap_bytes,
        limited_swap=settings.memory_swap.swap_behavior == "LimitedSwap",
        single_process_oom_kill=bool(settings.single_process_oom_kill),
        cgroup_v2=kernel.cgroup_v2,
        swap_controller=kernel.swap_controller,
        selinux_enabled=bool(kernel.selinux_label),
        hugepage_sizes=kernel.hugepage_sizes,
        memory_qos=memory_qos(
            settings,
            cgroup_v2=kernel.cgroup_v2,
            allocatable=unreserved_memory(
                facts.memory_bytes, (settings.kube_reserved, settings.system_reserved)
            ),
        ),
        thermal_throttle_paths=kernel.thermal_throttle_paths,
        default_sysctls=settings.default_pod_sysctls if gates.enabled("DefaultPodSysctls") else {},
        resizes_memory_volumes=gates.enabled(MEMORY_VOLUMES),
        stop_signals=gates.enabled("ContainerStopSignals"),
        uids=facts.rights.uids if facts.rights is not None else (),
    )


def first_crash_loop_delay(gates: FeatureGates) -> float:
    """The first delay between restarts of a container that crashes, in seconds."""
    reduced = gates.enabled("ReduceDefaultCrashLoopBackOffDecay")
    return REDUCED_BASE_SECONDS if reduced else BASE_SECONDS


# Changes of containers and sandboxes, and probes.


def build_runtime_changes(
    context: BuildContext,
    state: PodState,
    runtime: KubeRuntimeManager,
    loop: SyncLoop,
    relists: RelistHealth,
) -> list[Component]:
    """The relist, the runtime's event stream, and polls of init containers in between."""
    outside, cache, changed = context.outside, state.cache, loop.runtime_changed
    source = runtime.source
    pleg = Pleg(
        source.list_pods,
        source.read_pod_status,
        cache,
        outside.clock,
        changed,
        health=relists,
        metrics=outside.metrics.pleg,
    )
    early_polls = EarlyPolls(
        outside.runtime, cache, pleg, state.pods.current, task_exits=outside.task_exits
    )
    cache.subscribe(early_polls.changed)
    stream = EventStream(
        outside.runtime,
        source.event_to_status,
        cache,
        pleg,
        clock=outside.clock,
        on_change=changed,
        follow_exits=early_polls.follow_exits,
        rng=outside.rng,
    )
    return [
        Component(pleg, (Task("pleg", pleg.run),)),
        Component(stream, (Task("runtime-events", stream.run),)),
        Component(early_polls, close=early_polls.close),
    ]


def build_probes(context: BuildContext, state: PodState, recorder: KeptEvents) -> KubeProbeManager:
    """Build the prober of the containers of pods."""
    outside = context.outside
    prober = Prober(
        outside.runtime,
        recorder,
        http2=context.gates.enabled("H2CContainerProbe"),
        grpc_tls=context.gates.enabled("GRPCContainerProbeTLS"),
        version=context.gates.version,
    )
    return KubeProbeManager(
        prober,
        clock=outside.clock,
        get_status=state.statuses.get_status,
        on_result=context.signals.probe_settled,
        metrics=outside.metrics.probes,
        agent_started_at=context.life.beginning,
        rng=outside.rng,
    )


# Images: access, pulling, garbage collection.


class Images(Struct, frozen=True):
    """The image objects for the rest of the composition root."""

    manager: ImageManager
    gc: ImageGarbageCollector
    components: list[Component]


def build_images(context: BuildContext, state: PodState, tokens: PodTokens) -> Images:
    """``tokens``: of service accounts, for credential providers.

    Raises:
        ConfigError: the credential providers that the flags name can't be used.
    """
    settings, flags, outside = context.settings, context.flags, context.outside
    root, recorder = context.root, context.recorder
    clock, metrics, components = outside.clock, outside.metrics, list[Component]()
    records = pull_records(settings, root, outside.images, clock, metrics.pull_records)
    if records is not None:
        components.append(Component(records, start=records.start, close=records.close))
    providers: Plugins | None = None
    if flags.image_credential_provider_config or flags.image_credential_provider_bin_dir:
        # most nodes have none and start without loading this
        from kubeletpy.images.providers.provider import providers_from_flags
        from kubeletpy.volumes.projected.tokens import ClusterAccounts

        accounts = ClusterAccounts(context.kube_api, tokens)
        providers = providers_from_flags(settings, flags, accounts, metrics.credential_providers)
        components.append(Component(providers, close=providers.close))
    uses = ImageUses()
    monitor: PullMonitor | None = None
    if outside.content is not None:
        monitor = PullMonitor(outside.content, clock, metrics.images.show_pulls)
        components.append(Component(monitor, (Task("pull-progress", monitor.run, late=True),)))
    gc = ImageGarbageCollector(
        outside.images,
        outside.runtime,
        recorder,
        clock,
        metrics.images,
        node_name=context.node_name,
        policy=ImageGCPolicy.from_settings(settings),
        on_remaining=records.prune if records is not None else None,
        ages=ImageAges(root),
        named=lambda: pod_images(state.pods.pods(), state.active()),
        uses=uses,
        tracer=outside.tracer,
    )
    manager = ImageManager(
        outside.images,
        recorder,
        clock,
        metrics.images,
        settings=PullSettings.from_settings(settings),
        node_credentials=NodeCredentials(default_paths(root, Path.home())),
        providers=providers,
        records=records,
        pull_times=state.starts,
        pulled=gc.pulled,
        uses=uses,
        monitor=monitor,
    )
    return Images(manager, gc, components)

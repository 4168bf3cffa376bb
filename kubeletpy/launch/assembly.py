"""What an agent is given, made from settings and from what machine, runtime and API say."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.admission.facts import NodeState
from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.cgroups.machine import KernelFacts
from kubeletpy.cgroups.setup import set_up
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.clock import SystemClock
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.host.uptime import booted_at, process_started_at
from kubeletpy.images.node_credentials import NodeCredentials, default_paths
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.launch.errors import LaunchError
from kubeletpy.launch.image_credentials import make_providers, open_pull_records
from kubeletpy.launch.node import shutdown_periods
from kubeletpy.launch.pods import (
    container_gc_policy,
    host_dns,
    image_gc_policy,
    pull_settings,
    resize_rules,
    runtime_settings,
    static_pods,
)
from kubeletpy.launch.runtime import mount_features
from kubeletpy.launch.storage import storage_meter
from kubeletpy.launch.user_namespaces import open_user_namespaces
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.resources import allocatable, capacity
from kubeletpy.node.runtime_classes import RuntimeClassHandlers
from kubeletpy.parts import AgentParts
from kubeletpy.podworkers.requeue import RequeueSettings
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.runtime_manager.seams import Seams
from kubeletpy.volumes.build import PodSurroundings


@dataclass(frozen=True, slots=True)
class Ground:
    """What the parts of an agent stand on."""

    settings: KubeletSettings
    flags: NodeFlags
    root: Path
    metrics: Metrics
    runtime: RemoteRuntime
    client: KubeClient | None
    """None without --kubeconfig."""
    info: RuntimeInfo
    facts: MachineFacts
    kernel: KernelFacts
    node_ips: list[str]
    options: NodeOptions


async def make_parts(ground: Ground, stack: AsyncExitStack) -> AgentParts:
    """The parts of an agent; what must be closed goes on the stack. Raises LaunchError."""
    settings, runtime, client, root = ground.settings, ground.runtime, ground.client, ground.root
    metrics, info = ground.metrics, ground.info
    tree = await _cgroups(ground)
    surroundings = _surroundings(ground)
    stack.push_async_callback(surroundings.close)
    rules = runtime_settings(settings, ground.flags, ground.facts, ground.node_ips, ground.kernel)
    return AgentParts(
        runtime=runtime,
        images=runtime,
        clock=SystemClock(),
        root_dir=root,
        node=ground.options,
        facts=ground.facts,
        node_ips=ground.node_ips,
        runtime_info=info,
        kube_api=client,
        heartbeat_api=client and client.apart(qps=0, burst=0, timeout=_heartbeat_s(settings)),
        events_api=client
        and client.limited(qps=settings.event_record_qps, burst=settings.event_burst),
        runtime_settings=rules,
        resizes=resize_rules(settings, rules),
        seams=surroundings.seams,
        volumes=surroundings.volumes,
        storage=storage_meter(settings, runtime, str(root)),
        cgroups=tree,
        user_namespaces=await open_user_namespaces(settings, root / "pods", info, runtime),
        admission=_node_state(ground),
        pulls=pull_settings(settings),
        node_credentials=NodeCredentials(default_paths(root, Path.home())),
        credential_providers=make_providers(
            settings,
            ground.flags,
            api=client,
            tokens=surroundings.tokens,
            metrics=metrics,
            stack=stack,
        ),
        pull_records=await open_pull_records(
            settings, root, runtime, SystemClock(), metrics=metrics, stack=stack
        ),
        image_gc=image_gc_policy(settings),
        container_gc=container_gc_policy(ground.flags),
        static_pods=static_pods(settings),
        requeue=RequeueSettings(sync_frequency=settings.sync_frequency),
        shutdown_periods=shutdown_periods(settings),
        max_crash_loop_delay_s=settings.crash_loop_back_off.max_container_restart_period,
        metrics=metrics,
        booted_at=booted_at(SystemClock().now()),
        started_at=process_started_at(SystemClock().now()),
        on_connection=runtime.add_listener,
    )


async def _cgroups(ground: Ground) -> CgroupTree | None:
    try:
        return await set_up(
            ground.settings,
            ground.kernel,
            ground.runtime,
            capacity=capacity(ground.facts, ground.options),
            reserved_cpus=ground.options.reserved_cpus,
            losing_support=ground.metrics.runtime.losing_support,
        )
    except CgroupError as error:
        raise LaunchError(f"cgroups of pods: {error}") from error


def _surroundings(ground: Ground) -> PodSurroundings:
    settings, options = ground.settings, ground.options
    return PodSurroundings(
        ground.root / "pods",
        ground.client,
        SystemClock(),
        Seams(
            runtime_handler=RuntimeClassHandlers(ground.client).handler,
            host_dns=lambda: host_dns(settings.resolv_conf),
        ),
        features=mount_features(ground.info),
        cluster_domain=settings.cluster_domain,
        node_ips=ground.node_ips,
        allocatable=allocatable(capacity(ground.facts, options), options),
        metrics=ground.metrics.volumes,
    )


def _node_state(ground: Ground) -> NodeState:
    gates = ground.settings.feature_gates
    return NodeState(
        allowed_unsafe_sysctls=ground.settings.allowed_unsafe_sysctls,
        kernel_version=ground.facts.kernel_version,
        apparmor=ground.kernel.apparmor,
        pod_level_resources=gates.enabled("PodLevelResources"),
        declared_features=ground.options.declared_features
        if gates.enabled("NodeDeclaredFeatures")
        else None,
    )


def _heartbeat_s(settings: KubeletSettings) -> float:
    return min(settings.node_status_update_frequency, settings.node_lease_duration_seconds)

"""From settings to a running agent on this machine: real runtime, real API, real files.

The edge of the composition: reads the machine, connects, and fills in the parts of
:class:`kubeletpy.agent.Agent`, whose business it is what they do together.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from kubeletpy import serving
from kubeletpy.admission.facts import NodeState
from kubeletpy.agent import Agent
from kubeletpy.api import types as api
from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.cgroups.machine import KernelFacts, read_kernel_facts
from kubeletpy.cgroups.setup import set_up
from kubeletpy.clock import SystemClock
from kubeletpy.config import ConfigError, KubeletSettings, LoadedConfig, NodeFlags, Problem
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.images.manager import PullSettings
from kubeletpy.images.node_credentials import NodeCredentials, default_paths
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.metrics.exposition import CONTENT_TYPE
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts, default_route_ip, read_machine_facts, resolve
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.resources import allocatable, capacity
from kubeletpy.node.runtime_classes import RuntimeClassHandlers
from kubeletpy.parts import AgentParts, StaticPods
from kubeletpy.podworkers.requeue import RequeueSettings
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.errors import CRIError, IncompatibleRuntime
from kubeletpy.runtime_manager.dns import ResolvConfError, ResolverConfig, parse_resolv_conf
from kubeletpy.runtime_manager.gc_selection import GCPolicy
from kubeletpy.runtime_manager.seams import Seams
from kubeletpy.runtime_manager.settings import RuntimeSettings
from kubeletpy.runtime_manager.user_namespaces import UserNamespaces, subordinate_ids
from kubeletpy.server.build import Ports, ServerError
from kubeletpy.server.health import HealthServer, NotLoopback
from kubeletpy.shutdown.plan import Period, periods
from kubeletpy.version import VERSION
from kubeletpy.volumes.build import PodSurroundings, has_image_volumes
from kubeletpy.volumes.container_mounts import RuntimeFeatures

log = logging.getLogger(__name__)

KUBELET_VERSION = "v1.36.0"
"""The kubelet whose behaviour this agent has; the API server's skew rules go by it."""
CONNECT_TRY_S = 10.0


class LaunchError(Exception):
    """The agent can't start here; the message says what to do."""


async def run_agent(loaded: LoadedConfig) -> None:
    """Run a node agent until cancelled.

    Raises:
        ConfigError: settings that can't work on this machine.
        LaunchError: the machine or the runtime is not usable.
        KubeconfigError: the kubeconfig can't be read.
    """
    async with AsyncExitStack() as stack:
        agent = await make_agent(loaded, stack)
        await agent.run()


async def make_agent(loaded: LoadedConfig, stack: AsyncExitStack) -> Agent:
    """Connect to everything and build the agent; what must be closed goes on the stack."""
    settings, flags = loaded.settings, loaded.node
    metrics = Metrics()
    metrics.process.set_build(KUBELET_VERSION)
    root = Path(flags.root_dir)
    _make_root(root)
    facts = read_machine_facts(root)
    runtime = RemoteRuntime(
        settings.container_runtime_endpoint,
        image_endpoint=settings.image_endpoint,
        request_timeout=settings.runtime_request_timeout,
        metrics=metrics.runtime,
    )
    stack.push_async_callback(runtime.close)
    ports = _bind_ports(settings, flags, stack)
    client = await _kube_client(settings, flags, metrics, stack)
    info = await _wait_for_runtime(runtime)
    node_ips = await _node_ips(flags, facts)
    options = node_options(settings, flags, facts)
    if ports is not None:
        options = replace(options, kubelet_port=ports.port)
    kernel = read_kernel_facts()
    try:
        tree = await set_up(
            settings,
            kernel,
            runtime,
            capacity=capacity(facts, options),
            reserved_cpus=options.reserved_cpus,
        )
    except CgroupError as error:
        raise LaunchError(f"cgroups of pods: {error}") from error
    surroundings = PodSurroundings(
        root / "pods",
        client,
        SystemClock(),
        Seams(
            runtime_handler=RuntimeClassHandlers(client).handler,
            host_dns=lambda: host_dns(settings.resolv_conf),
        ),
        features=mount_features(info),
        cluster_domain=settings.cluster_domain,
        node_ips=node_ips,
        allocatable=allocatable(capacity(facts, options), options),
    )
    stack.push_async_callback(surroundings.close)
    parts = AgentParts(
        runtime=runtime,
        images=runtime,
        clock=SystemClock(),
        root_dir=root,
        node=options,
        facts=facts,
        node_ips=node_ips,
        runtime_info=info,
        kube_api=client,
        heartbeat_api=client and client.limited(qps=0, burst=0, timeout=_heartbeat_s(settings)),
        events_api=client
        and client.limited(qps=settings.event_record_qps, burst=settings.event_burst),
        runtime_settings=runtime_settings(settings, flags, facts, node_ips, kernel),
        seams=surroundings.seams,
        volumes=surroundings.volumes,
        cgroups=tree,
        user_namespaces=UserNamespaces(
            root / "pods",
            supporting={
                handler.get("name") or ""
                for handler in info.handlers
                if (handler.get("features") or {}).get("userNamespaces")
            },
            max_pods=settings.max_pods,
            ids_per_pod=settings.user_namespaces.ids_per_pod,
            owned=subordinate_ids(),
        ),
        admission=NodeState(
            allowed_unsafe_sysctls=settings.allowed_unsafe_sysctls,
            kernel_version=facts.kernel_version,
            apparmor=kernel.apparmor,
            pod_level_resources=settings.feature_gates.enabled("PodLevelResources"),
        ),
        pulls=PullSettings(
            serialize=settings.serialize_image_pulls,
            max_parallel=settings.max_parallel_image_pulls,
            qps=settings.registry_pull_qps,
            burst=settings.registry_burst,
        ),
        node_credentials=NodeCredentials(default_paths(root, Path.home())),
        image_gc=ImageGCPolicy(
            high_threshold_percent=settings.image_gc_high_threshold_percent,
            low_threshold_percent=settings.image_gc_low_threshold_percent,
            min_age=settings.image_minimum_gc_age,
            max_age=settings.image_maximum_gc_age,
        ),
        container_gc=GCPolicy(
            min_age=flags.minimum_container_ttl_duration,
            max_per_container=flags.maximum_dead_containers_per_container,
            max_total=flags.maximum_dead_containers,
        ),
        static_pods=StaticPods(
            path=settings.static_pod_path,
            url=settings.static_pod_url,
            url_headers=dict(settings.static_pod_url_header),
            file_check_s=settings.file_check_frequency,
            http_check_s=settings.http_check_frequency,
        ),
        requeue=RequeueSettings(sync_frequency=settings.sync_frequency),
        shutdown_periods=shutdown_periods(settings),
        max_crash_loop_delay_s=settings.crash_loop_back_off.max_container_restart_period,
        metrics=metrics,
        on_connection=runtime.add_listener,
    )
    agent = Agent(parts)
    await _serve_health(settings, agent, stack)
    serving.rotate_logs(agent, settings, stack)
    if ports is not None:
        try:
            await serving.serve(ports, agent, settings, client, stack)
        except ServerError as error:
            raise LaunchError(str(error)) from error
    await agent.explain.start()
    stack.push_async_callback(agent.explain.close)
    return agent


def mount_features(info: RuntimeInfo) -> RuntimeFeatures:
    """What the runtime says that it can mount."""
    recursive = {
        handler.get("name") or ""
        for handler in info.handlers
        if (handler.get("features") or {}).get("recursiveReadOnlyMounts")
    }
    return RuntimeFeatures(has_image_volumes(info.name, info.version), frozenset(recursive))


def _bind_ports(settings: KubeletSettings, flags: NodeFlags, stack: AsyncExitStack) -> Ports | None:
    try:
        ports = serving.bind(settings, flags)
    except ServerError as error:
        raise LaunchError(str(error)) from error
    if ports is not None:
        stack.callback(ports.close)
    return ports


def _make_root(root: Path) -> None:
    try:
        for directory in (root, root / "pods"):
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"--root-dir {root} can't be made: {error}; the agent has to run as root"
        ) from error


async def _kube_client(
    settings: KubeletSettings, flags: NodeFlags, metrics: Metrics, stack: AsyncExitStack
) -> KubeClient | None:
    if not flags.kubeconfig:
        log.warning("no --kubeconfig: only static pods are run, and nothing is reported")
        return None
    client = await KubeClient.from_kubeconfig(
        flags.kubeconfig,
        qps=settings.kube_api_qps,
        burst=settings.kube_api_burst,
        observe=metrics.rest_client.request_done,
    )
    stack.push_async_callback(client.close)
    return client


def _heartbeat_s(settings: KubeletSettings) -> float:
    return min(settings.node_status_update_frequency, settings.node_lease_duration_seconds)


async def _wait_for_runtime(runtime: RemoteRuntime) -> RuntimeInfo:
    """Wait until the runtime answers; says once what it waits for."""
    said = False
    while True:
        try:
            version = await runtime.connect(CONNECT_TRY_S)
            handlers, groups_policy = await _runtime_features(runtime)
        except IncompatibleRuntime as error:
            raise LaunchError(str(error)) from error
        except CRIError as error:
            if not said:
                log.warning("waiting for the container runtime", extra={"why": str(error)})
            said = True
            await asyncio.sleep(1)
            continue
        return RuntimeInfo(version.runtime_name, version.runtime_version, handlers, groups_policy)


async def _runtime_features(runtime: RemoteRuntime) -> tuple[list[api.NodeRuntimeHandler], bool]:
    status = await runtime.status()
    handlers: list[api.NodeRuntimeHandler] = []
    for handler in status.runtime_handlers:
        entry: api.NodeRuntimeHandler = {
            "features": {
                "recursiveReadOnlyMounts": handler.features.recursive_read_only_mounts,
                "userNamespaces": handler.features.user_namespaces,
            }
        }
        entry["name"] = handler.name
        handlers.append(entry)
    return handlers, status.features.supplemental_groups_policy


async def _node_ips(flags: NodeFlags, facts: MachineFacts) -> list[str]:
    if flags.node_ip:
        return [ip.strip() for ip in flags.node_ip.split(",") if ip.strip()]
    found = default_route_ip()
    if found:
        return [found]
    resolved = await asyncio.to_thread(resolve, facts.hostname)
    return resolved[:1] or ["127.0.0.1"]


def node_name(flags: NodeFlags, facts: MachineFacts) -> str:
    """The node's name: --hostname-override, else the host name; lower case, trimmed."""
    return (flags.hostname_override or facts.hostname).strip().lower()


def node_options(settings: KubeletSettings, flags: NodeFlags, facts: MachineFacts) -> NodeOptions:
    """What the settings say about the Node object."""
    taints: list[api.Taint] = []
    for taint in settings.register_with_taints:
        entry: api.Taint = {"key": taint.key, "effect": taint.effect}
        if taint.value:
            entry["value"] = taint.value
        taints.append(entry)
    cpus = settings.reserved_system_cpus
    return NodeOptions(
        name=node_name(flags, facts),
        register=settings.register_node,
        labels=dict(flags.node_labels),
        taints=taints,
        max_pods=settings.max_pods,
        pods_per_core=settings.pods_per_core,
        kube_reserved=settings.kube_reserved,
        system_reserved=settings.system_reserved,
        eviction_hard=settings.eviction_hard,
        reserved_cpus=len(parse_cpuset(cpus) or ()) if cpus else 0,
        provider_id=settings.provider_id,
        external_cloud_provider=flags.cloud_provider == "external",
        controller_attach_detach=settings.enable_controller_attach_detach,
        kubelet_port=settings.port,
        lease_duration_s=settings.node_lease_duration_seconds,
        status_update_s=settings.node_status_update_frequency,
        status_report_s=settings.node_status_report_frequency,
        max_images=settings.node_status_max_images,
        version=f"{KUBELET_VERSION}-kubeletpy.{VERSION}",
    )


def runtime_settings(
    settings: KubeletSettings,
    flags: NodeFlags,
    facts: MachineFacts,
    node_ips: list[str],
    kernel: KernelFacts,
) -> RuntimeSettings:
    """What the settings say about sandboxes and containers."""
    return replace(
        RuntimeSettings(),
        pod_logs_dir=settings.pod_logs_dir,
        seccomp_root=str(Path(flags.root_dir) / "seccomp"),
        seccomp_default=settings.seccomp_default,
        cluster_domain=settings.cluster_domain,
        cluster_dns=settings.cluster_dns,
        node_ips=tuple(node_ips),
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


def shutdown_periods(settings: KubeletSettings) -> tuple[Period, ...]:
    """What the settings say about graceful node shutdown; empty: off."""
    return periods(
        settings.shutdown_grace_period,
        settings.shutdown_grace_period_critical_pods,
        [
            (each.priority, each.shutdown_grace_period_seconds)
            for each in settings.shutdown_grace_period_by_pod_priority
        ],
    )


def host_dns(path: str) -> ResolverConfig | None:
    """The host's resolver configuration; None when the settings name no file."""
    if not path:
        return None
    try:
        return parse_resolv_conf(Path(path).read_text(errors="replace"))
    except (OSError, ResolvConfError) as error:
        log.warning("resolvConf can't be used", extra={"path": path, "why": str(error)})
        return ResolverConfig()


async def _serve_health(settings: KubeletSettings, agent: Agent, stack: AsyncExitStack) -> None:
    if not settings.healthz_port:
        return
    try:
        server = HealthServer(
            settings.healthz_bind_address,
            settings.healthz_port,
            checks={
                "ping": lambda: "",
                "runtime": agent.monitor.runtime_error,
                "syncloop": agent.sync_loop_error,
            },
            render_metrics=lambda: (agent.render_metrics(), CONTENT_TYPE),
            render_probe_metrics=lambda: (agent.metrics.render_probes(), CONTENT_TYPE),
        )
        await server.start()
    except NotLoopback as error:
        problem = Problem("healthzBindAddress", settings.healthz_bind_address, str(error))
        raise ConfigError([problem]) from error
    except OSError as error:
        where = f"{settings.healthz_bind_address}:{settings.healthz_port}"
        raise LaunchError(
            f"healthzPort: can't listen on {where}: {error}; is another kubelet running? "
            "Choose another healthzPort, or 0 for none"
        ) from error
    stack.push_async_callback(server.close)

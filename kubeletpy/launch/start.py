"""Starting an agent: connect to runtime and API, fill in the parts, serve, run until cancelled."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from kubeletpy import serving
from kubeletpy.admission.facts import NodeState
from kubeletpy.agent import Agent
from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.cgroups.machine import read_kernel_facts
from kubeletpy.cgroups.setup import set_up
from kubeletpy.clock import SystemClock
from kubeletpy.config import ConfigError, KubeletSettings, LoadedConfig, NodeFlags, Problem
from kubeletpy.config.gates import GATES
from kubeletpy.host.uptime import booted_at, process_started_at
from kubeletpy.images.node_credentials import NodeCredentials, default_paths
from kubeletpy.launch.errors import LaunchError
from kubeletpy.launch.identity import join
from kubeletpy.launch.image_credentials import make_providers, open_pull_records
from kubeletpy.launch.node import (
    KUBELET_VERSION,
    find_node_ips,
    node_name,
    node_options,
    shutdown_periods,
)
from kubeletpy.launch.pods import (
    container_gc_policy,
    host_dns,
    image_gc_policy,
    pull_settings,
    resize_rules,
    runtime_settings,
    static_pods,
)
from kubeletpy.launch.runtime import mount_features, wait_for_runtime
from kubeletpy.launch.serving_certificate import serving_certificate
from kubeletpy.launch.storage import storage_meter
from kubeletpy.launch.user_namespaces import open_user_namespaces
from kubeletpy.metrics.exposition import CONTENT_TYPE
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.facts import read_machine_facts
from kubeletpy.node.resources import allocatable, capacity
from kubeletpy.node.runtime_classes import RuntimeClassHandlers
from kubeletpy.parts import AgentParts
from kubeletpy.podworkers.requeue import RequeueSettings
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.endpoint import EndpointError
from kubeletpy.runtime_manager.seams import Seams
from kubeletpy.server.build import Ports, ServerError
from kubeletpy.server.health import HealthServer, NotLoopback
from kubeletpy.volumes.build import PodSurroundings
from kubeletpy.volumes.syscalls import share

log = logging.getLogger(__name__)


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
    metrics.process.set_features(
        {name: (GATES[name].stage, on) for name, on in settings.feature_gates.effective.items()}
    )
    root = Path(flags.root_dir)
    _make_root(root)
    facts = read_machine_facts(root)
    try:
        runtime = RemoteRuntime(
            settings.container_runtime_endpoint,
            image_endpoint=settings.image_endpoint,
            request_timeout=settings.runtime_request_timeout,
            metrics=metrics.runtime,
        )
    except EndpointError as error:
        raise LaunchError(str(error)) from error
    stack.push_async_callback(runtime.close)
    ports = _bind_ports(settings, flags, stack)
    identity = await join(settings, flags, node_name(flags, facts), metrics, stack)
    client = identity.client if identity else None
    info = await wait_for_runtime(runtime)
    node_ips = await find_node_ips(flags, facts)
    _share_root(root)
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
            losing_support=metrics.runtime.losing_support,
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
        metrics=metrics.volumes,
    )
    stack.push_async_callback(surroundings.close)
    runtime_rules = runtime_settings(settings, flags, facts, node_ips, kernel)
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
        runtime_settings=runtime_rules,
        resizes=resize_rules(settings, runtime_rules),
        seams=surroundings.seams,
        volumes=surroundings.volumes,
        storage=storage_meter(settings, runtime, str(root)),
        cgroups=tree,
        user_namespaces=await open_user_namespaces(settings, root / "pods", info, runtime),
        admission=NodeState(
            allowed_unsafe_sysctls=settings.allowed_unsafe_sysctls,
            kernel_version=facts.kernel_version,
            apparmor=kernel.apparmor,
            pod_level_resources=settings.feature_gates.enabled("PodLevelResources"),
            declared_features=options.declared_features
            if settings.feature_gates.enabled("NodeDeclaredFeatures")
            else None,
        ),
        pulls=pull_settings(settings),
        node_credentials=NodeCredentials(default_paths(root, Path.home())),
        credential_providers=make_providers(
            settings,
            flags,
            api=client,
            tokens=surroundings.tokens,
            metrics=metrics,
            stack=stack,
        ),
        pull_records=await open_pull_records(
            settings, root, runtime, SystemClock(), metrics=metrics, stack=stack
        ),
        image_gc=image_gc_policy(settings),
        container_gc=container_gc_policy(flags),
        static_pods=static_pods(settings),
        requeue=RequeueSettings(sync_frequency=settings.sync_frequency),
        shutdown_periods=shutdown_periods(settings),
        max_crash_loop_delay_s=settings.crash_loop_back_off.max_container_restart_period,
        metrics=metrics,
        booted_at=booted_at(SystemClock().now()),
        started_at=process_started_at(SystemClock().now()),
        on_connection=runtime.add_listener,
    )
    agent = Agent(parts)
    agent.companions += identity.tasks if identity else []
    serving_pair = await serving_certificate(agent, settings, flags, client)
    await _serve_health(settings, agent, stack)
    serving.rotate_logs(agent, settings, stack)
    if ports is not None:
        try:
            await serving.serve(
                ports,
                agent,
                client,
                stack,
                settings=settings,
                flags=flags,
                serving_pair=serving_pair,
            )
        except ServerError as error:
            raise LaunchError(str(error)) from error
    await agent.explain.start()
    stack.push_async_callback(agent.explain.close)
    return agent


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


def _share_root(root: Path) -> None:
    """Only of an agent that can run: one that gives up leaves no mount behind."""
    try:
        share(str(root))
    except OSError as error:
        log.warning(
            "mounts below the root directory reach neither the node nor other pods: "
            "mountPropagation of hostPath volumes there does nothing",
            extra={"directory": str(root), "why": str(error)},
        )


def _heartbeat_s(settings: KubeletSettings) -> float:
    return min(settings.node_status_update_frequency, settings.node_lease_duration_seconds)


async def _serve_health(settings: KubeletSettings, agent: Agent, stack: AsyncExitStack) -> None:
    if not settings.healthz_port:
        return
    try:
        server = HealthServer(
            settings.healthz_bind_address,
            settings.healthz_port,
            checks=agent.metrics.health.counted(
                {
                    "ping": lambda: "",
                    "runtime": agent.monitor.runtime_error,
                    "syncloop": agent.health.sync_loop_error,
                }
            ),
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

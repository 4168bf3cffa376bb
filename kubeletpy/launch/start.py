"""Starting an agent: connect to runtime and API, read the machine, build, start, run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.build import build
from kubeletpy.agent.outside import ApiClients, Machine, Outside
from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.cgroups.machine import KernelFacts, read_kernel_facts
from kubeletpy.cgroups.setup import set_up
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.clock import SystemClock
from kubeletpy.config import ConfigError, KubeletSettings, LoadedConfig, NodeFlags, Problem
from kubeletpy.config.gates import GATES
from kubeletpy.eviction.machine import MachineSignals
from kubeletpy.guards.host import this_machine
from kubeletpy.host.uptime import booted_at, process_started_at
from kubeletpy.images.records.ledger import RecordsUnreadable
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.launch.errors import LaunchError
from kubeletpy.launch.identity import join
from kubeletpy.launch.node import find_node_ips
from kubeletpy.launch.runtime import pod_selectors, wait_for_runtime
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.node.options import KUBELET_VERSION, NodeOptions, node_name, reserved_cpus
from kubeletpy.node.resources import capacity
from kubeletpy.placement.machine import MachineTopology, TopologyUnknown, read_machine
from kubeletpy.placement.state_file import StateUnusable
from kubeletpy.plugins.handshake import SocketRegistrations
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.endpoint import EndpointError
from kubeletpy.server.build import Ports
from kubeletpy.server.errors import ServerError
from kubeletpy.server.health import NotLoopback
from kubeletpy.server.settings import ServerSettings
from kubeletpy.trace.watched_loop import WatchedLoop, watching
from kubeletpy.volumes.syscalls import share

REVIEW_QPS, REVIEW_BURST = 50, 100
"""Requests per second to the API on behalf of clients: apart from what pods need."""

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
    """Connect to everything, build the agent and start it; the stack closes all of it."""
    settings, flags = loaded.settings, loaded.node
    metrics, clock, root = _metrics(settings), SystemClock(), Path(flags.root_dir)
    _make_root(root)
    facts = read_machine_facts(root)
    name = node_name(flags, facts.hostname)
    runtime = _connect(settings, metrics, root, stack)
    ports = _bind_ports(settings, flags, stack)
    identity = await join(settings, flags, name, metrics, stack)
    info = await wait_for_runtime(runtime)
    node_ips = await find_node_ips(flags, facts)
    _share_root(root)
    kernel = read_kernel_facts()
    now = clock.now()
    cgroups = await _cgroups(settings, facts, kernel, runtime, metrics.runtime.losing_support)
    kubepods = cgroups.names.kubepods if cgroups is not None else ""
    outside = Outside(
        machine=Machine(
            facts,
            kernel,
            node_ips,
            cgroups=cgroups,
            signals=MachineSignals.here(clock, kubepods, flags.root_dir, runtime),
            guarded=this_machine(),
            topology=_topology(settings),
            booted_at=booted_at(now),
            started_at=process_started_at(now),
        ),
        runtime=runtime,
        images=runtime,
        runtime_info=info,
        clock=clock,
        api=_api_clients(settings, identity.client) if identity is not None else None,
        metrics=metrics,
        credentials=identity.tasks if identity is not None else (),
        ports=ports,
        on_connection=runtime.add_listener,
        plugins=SocketRegistrations(),
    )
    if isinstance(loop := asyncio.get_running_loop(), WatchedLoop):
        metrics.process.longest_turn.set_function(loop.turns.take_longest)
        stack.enter_context(watching(loop, metrics.process.stalls.inc))
    try:
        agent = build(settings, flags, outside)
        stack.push_async_callback(agent.close)
        await agent.start()
    except NotLoopback as error:
        problem = Problem("healthzBindAddress", settings.healthz_bind_address, str(error))
        raise ConfigError([problem]) from error
    except (ServerError, RecordsUnreadable, StateUnusable) as error:
        raise LaunchError(str(error)) from error
    return agent


def _topology(settings: KubeletSettings) -> MachineTopology | None:
    """How the machine is built, if anything is given by place. Raises LaunchError."""
    policies = (
        settings.cpu_manager_policy,
        settings.memory_manager_policy.lower(),
        settings.topology_manager_policy,
    )
    if all(policy == "none" for policy in policies):
        return None
    try:
        return read_machine()
    except TopologyUnknown as error:
        raise LaunchError(str(error)) from error


def _api_clients(settings: KubeletSettings, client: KubeClient) -> ApiClients:
    beat = min(settings.node_status_update_frequency, settings.node_lease_duration_seconds)
    return ApiClients(
        pods=client,
        heartbeats=client.apart(qps=0, burst=0, timeout=beat),
        events=client.limited(qps=settings.event_record_qps, burst=settings.event_burst),
        reviews=client.limited(qps=REVIEW_QPS, burst=REVIEW_BURST),
    )


async def _cgroups(
    settings: KubeletSettings,
    facts: MachineFacts,
    kernel: KernelFacts,
    runtime: RemoteRuntime,
    losing_support: Callable[[], None],
) -> CgroupTree | None:
    try:
        return await set_up(
            settings,
            kernel,
            runtime,
            capacity=capacity(facts, NodeOptions.from_settings(settings, NodeFlags())),
            reserved_cpus=reserved_cpus(settings),
            losing_support=losing_support,
        )
    except CgroupError as error:
        raise LaunchError(f"cgroups of pods: {error}") from error


def _metrics(settings: KubeletSettings) -> Metrics:
    metrics = Metrics()
    metrics.process.set_build(KUBELET_VERSION)
    metrics.process.set_features(
        {name: (GATES[name].stage, on) for name, on in settings.feature_gates.effective.items()}
    )
    return metrics


def _connect(
    settings: KubeletSettings, metrics: Metrics, root: Path, stack: AsyncExitStack
) -> RemoteRuntime:
    try:
        runtime = RemoteRuntime(
            settings.container_runtime_endpoint,
            image_endpoint=settings.image_endpoint,
            request_timeout=settings.runtime_request_timeout,
            metrics=metrics.runtime,
            pod_selectors=partial(pod_selectors, root, settings.pod_logs_dir),
        )
    except EndpointError as error:
        raise LaunchError(str(error)) from error
    stack.push_async_callback(runtime.close)
    return runtime


def _bind_ports(settings: KubeletSettings, flags: NodeFlags, stack: AsyncExitStack) -> Ports | None:
    try:
        if not settings.enable_server:
            return None
        ports = Ports(ServerSettings.from_settings(settings, flags))
    except ServerError as error:
        raise LaunchError(str(error)) from error
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

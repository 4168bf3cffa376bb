"""Starting an agent: connect to runtime and API, fill in the parts, serve, run until cancelled."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from kubeletpy import serving
from kubeletpy.agent import Agent
from kubeletpy.cgroups.machine import read_kernel_facts
from kubeletpy.config import ConfigError, KubeletSettings, LoadedConfig, NodeFlags, Problem
from kubeletpy.config.gates import GATES
from kubeletpy.launch.assembly import Ground, make_parts
from kubeletpy.launch.errors import LaunchError
from kubeletpy.launch.identity import join
from kubeletpy.launch.node import (
    KUBELET_VERSION,
    find_node_ips,
    node_name,
    node_options,
)
from kubeletpy.launch.runtime import pod_selectors, wait_for_runtime
from kubeletpy.launch.serving_certificate import serving_certificate
from kubeletpy.metrics.exposition import CONTENT_TYPE
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.endpoint import EndpointError
from kubeletpy.server.build import Ports, ServerError
from kubeletpy.server.health import HealthServer, NotLoopback
from kubeletpy.trace.watched_loop import WatchedLoop, watching
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
    metrics = _metrics(settings)
    root = Path(flags.root_dir)
    _make_root(root)
    facts = read_machine_facts(root)
    runtime = _connect(settings, metrics, root, stack)
    ports = _bind_ports(settings, flags, stack)
    identity = await join(settings, flags, node_name(flags, facts), metrics, stack)
    client = identity.client if identity else None
    info = await wait_for_runtime(runtime)
    node_ips = await find_node_ips(flags, facts)
    _share_root(root)
    options = node_options(settings, flags, facts)
    if ports is not None:
        options = replace(options, kubelet_port=ports.port)
    ground = Ground(
        settings=settings,
        flags=flags,
        root=root,
        metrics=metrics,
        runtime=runtime,
        client=client,
        info=info,
        facts=facts,
        kernel=read_kernel_facts(),
        node_ips=node_ips,
        options=options,
    )
    agent = Agent(await make_parts(ground, stack))
    agent.companions += identity.tasks if identity else []
    if isinstance(loop := asyncio.get_running_loop(), WatchedLoop):
        metrics.process.longest_turn.set_function(loop.turns.take_longest)
        stack.enter_context(watching(loop, metrics.process.stalls.inc))
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

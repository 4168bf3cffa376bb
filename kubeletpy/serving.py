"""The agent's HTTPS server from the settings: what it may show of the agent, and to whom.

Must never listen where settings don't say so, and never answer before it knows who may ask.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.clock import SystemClock
from kubeletpy.config import KubeletSettings, NodeFlags, document
from kubeletpy.config.flag_texts import flag_texts
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.server.access import AccessSettings
from kubeletpy.server.build import Ports, ServerError, ServerSettings
from kubeletpy.server.debug.log_sinks import log_problem
from kubeletpy.server.debug.zpages import Program
from kubeletpy.server.endpoints import EndpointSettings
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.tls import PairInUse
from kubeletpy.stats.build import machine, make_collector
from kubeletpy.stats.views import StatsViews

if TYPE_CHECKING:
    from kubeletpy.agent import Agent

REVIEW_QPS, REVIEW_BURST = 50, 100
"""Requests per second to the API on behalf of clients: apart from what pods need."""


def server_settings(settings: KubeletSettings, flags: NodeFlags) -> ServerSettings:
    """What the settings say about the server."""
    authentication, authorization = settings.authentication, settings.authorization
    return ServerSettings(
        address=settings.address,
        port=settings.port,
        read_only_port=settings.read_only_port,
        certificate=settings.tls_cert_file,
        key=settings.tls_private_key_file,
        client_ca=authentication.x509.client_ca_file,
        tls_min_version=settings.tls_min_version,
        tls_ciphers=settings.tls_cipher_suites,
        certificate_dir=certificate_dir(flags),
        access=AccessSettings(
            token_reviews=authentication.webhook.enabled,
            token_ttl=authentication.webhook.cache_ttl,
            anonymous=authentication.anonymous.enabled,
            always_allow=authorization.mode == "AlwaysAllow",
            allowed_ttl=authorization.webhook.cache_authorized_ttl,
            refused_ttl=authorization.webhook.cache_unauthorized_ttl,
        ),
        debugging=settings.enable_debugging_handlers,
        endpoints=_endpoints(settings, flags),
        idle_timeout=settings.streaming_connection_idle_timeout,
    )


def _endpoints(settings: KubeletSettings, flags: NodeFlags) -> EndpointSettings:
    gates = settings.feature_gates
    checkpoints = Path(flags.root_dir) / "checkpoints"
    return EndpointSettings(
        system_logs=settings.enable_system_log_handler,
        system_log_query=settings.enable_system_log_query and gates.enabled("NodeLogQuery"),
        profiling=settings.enable_profiling_handler,
        debug_flags=settings.enable_debug_flags_handler,
        flagz=gates.enabled("ComponentFlagz"),
        statusz=gates.enabled("ComponentStatusz"),
        split_log_streams=gates.enabled("PodLogsQuerySplitStreams"),
        checkpoint_dir=checkpoints if gates.enabled("ContainerCheckpoint") else None,
    )


def certificate_dir(flags: NodeFlags) -> Path:
    """--cert-dir; left as it is by default, the certificates live with everything else."""
    default = NodeFlags().cert_dir
    return Path(flags.root_dir) / "pki" if flags.cert_dir == default else Path(flags.cert_dir)


def bind(settings: KubeletSettings, flags: NodeFlags) -> Ports | None:
    """The ports, bound; None when enableServer is off. Raises ServerError."""
    if not settings.enable_server:
        return None
    if not flags.kubeconfig:
        _check_alone(settings)
    return Ports(server_settings(settings, flags))


def _check_alone(settings: KubeletSettings) -> None:
    """As the kubelet: without an API, settings that need one are an error."""
    asks = []
    if settings.authentication.webhook.enabled:
        asks.append("authentication.webhook.enabled true (set it to false)")
    if settings.authorization.mode == "Webhook":
        asks.append(
            "authorization.mode Webhook (set AlwaysAllow: clients with a certificate of "
            "authentication.x509.clientCAFile may then do anything)"
        )
    if asks:
        raise ServerError(
            f"without --kubeconfig there is no API to ask about clients, but the settings want it: "
            f"{'; '.join(asks)}. Or serve nothing: enableServer false"
        )


def rotate_logs(agent: Agent, settings: KubeletSettings, stack: AsyncExitStack) -> None:
    """Keep container logs within their limits until the stack is closed."""
    rotator = LogRotator(
        agent.parts.runtime,
        agent.cache,
        settings.pod_logs_dir,
        RotationSettings(
            max_size=settings.container_log_max_size,
            max_files=settings.container_log_max_files,
            workers=settings.container_log_max_workers,
            interval=settings.container_log_monitor_interval,
        ),
        SystemClock(),
    )
    task = asyncio.create_task(rotator.run(), name="log-rotation")
    stack.callback(task.cancel)


def _stats(
    agent: Agent, settings: KubeletSettings, flags: NodeFlags, stack: AsyncExitStack
) -> StatsViews:
    """What is used on the node, collected when somebody asks."""
    parts = agent.parts
    collector = make_collector(
        settings,
        SystemClock(),
        runtime=parts.runtime,
        images=parts.images,
        pods=agent.pods,
        cache=agent.cache,
        tree=parts.cgroups,
        root_dir=str(parts.root_dir),
        runtime_cgroups=flags.runtime_cgroups,
    )
    stack.push_async_callback(collector.close)
    from_runtime = settings.feature_gates.enabled("PodAndContainerStatsFromCRI")
    return StatsViews(
        collector,
        parts.node.name,
        machine(parts.facts),
        from_runtime=parts.runtime if from_runtime else None,
        provider=agent.metrics.http.metrics_come_from,
    )


async def serve(
    ports: Ports,
    agent: Agent,
    client: KubeClient | None,
    stack: AsyncExitStack,
    *,
    settings: KubeletSettings,
    flags: NodeFlags,
    serving_pair: PairInUse | None = None,
) -> None:
    """Answer on the ports until the stack is closed.

    Args:
        serving_pair: gives the certificate in use; None: it is in files.

    Raises:
        ServerError: the files can't be used.
    """
    parts = agent.parts
    view = NodeView(
        node_name=parts.node.name,
        pods=agent.pods,
        cache=agent.cache,
        runtime=parts.runtime,
        status_of=agent.statuses.get_status,
        checks=agent.metrics.health.counted(
            {
                "ping": lambda: "",
                "log": log_problem,
                "syncloop": agent.health.sync_loop_error,
            }
        ),
        render_metrics=agent.render_metrics,
        render_probe_metrics=agent.metrics.render_probes,
        configz=lambda: document(settings),
        pod_logs_dir=settings.pod_logs_dir,
        stats=_stats(agent, settings, flags, stack),
        render_slis=agent.metrics.render_slis,
    )
    await ports.serve(
        view,
        client and client.limited(qps=REVIEW_QPS, burst=REVIEW_BURST),
        agent.metrics.http,
        SystemClock(),
        stack,
        node_ips=parts.node_ips,
        serving_pair=serving_pair,
        program=Program(
            flags=flag_texts(settings, flags),
            started_at=SystemClock().now(),
            version=parts.node.version,
        ),
    )

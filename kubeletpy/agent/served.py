"""What an agent serves: health checks, explain, and the kubelet's own server.

A part of the composition root. Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.agent.health import SyncLoopHealth
from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room
from kubeletpy.agent.scrape import Scrape
from kubeletpy.config import KubeletSettings, NodeFlags, document
from kubeletpy.config.flag_texts import flag_texts
from kubeletpy.explain.server import SOCKET_NAME, ExplainServer
from kubeletpy.explain.snapshot import Snapshots
from kubeletpy.metrics.exposition import CONTENT_TYPE
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.runtime_monitor import RuntimeMonitor
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.server.build import KubeletServer
from kubeletpy.server.certificate import ServingCertificate
from kubeletpy.server.debug.log_sinks import log_problem
from kubeletpy.server.debug.zpages import Program
from kubeletpy.server.health import HealthServer
from kubeletpy.server.node_view import NodeView
from kubeletpy.stats.build import machine as read_machine
from kubeletpy.stats.collector import StatsCollector
from kubeletpy.stats.views import StatsViews
from kubeletpy.status.manager import ApiStatusManager
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.trace.spans import Traces


def served(
    settings: KubeletSettings,
    flags: NodeFlags,
    outside: Outside,
    options: NodeOptions,
    *,
    pods: PodManager,
    cache: PodStatusCache,
    statuses: ApiStatusManager,
    monitor: RuntimeMonitor,
    loop: SyncLoop,
    scrape: Scrape,
    snapshots: Snapshots,
    traces: Traces,
    certificate: ServingCertificate | None,
    started_at: float,
    new_collector: Callable[[], StatsCollector],
    pressure: Callable[[], dict[str, Any] | None],
) -> list[Room]:
    """``certificate`` None: the server's is in files. ``started_at`` is in Unix seconds.
    ``pressure``: the node's, for explain."""
    machine, metrics = outside.machine, outside.metrics
    rooms: list[Room] = []
    loop_health = SyncLoopHealth(loop, settings.sync_frequency)
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
        rooms.append(Room(health_server, start=health_server.start, close=health_server.close))
    if outside.ports is not None:
        collector = new_collector()
        from_runtime = settings.feature_gates.enabled("PodAndContainerStatsFromCRI")
        view = NodeView(
            node_name=options.name,
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
                options.name,
                read_machine(machine.facts),
                from_runtime=outside.runtime if from_runtime else None,
                provider=metrics.http.metrics_come_from,
            ),
            render_slis=metrics.render_slis,
        )
        server = KubeletServer(
            outside.ports,
            view,
            outside.api.reviews if outside.api is not None else None,
            metrics=metrics.http,
            clock=outside.clock,
            node_ips=machine.node_ips,
            serving_pair=certificate.in_use if certificate is not None else None,
            program=Program(
                flags=flag_texts(settings, flags),
                started_at=started_at,
                version=options.version,
            ),
        )
        rooms += [
            Room(collector, close=collector.close),
            Room(server, start=server.start, close=server.close),
        ]
    if outside.sockets:
        explain = ExplainServer(Path(flags.root_dir) / SOCKET_NAME, snapshots, traces, pressure)
        rooms.append(Room(explain, start=explain.start, close=explain.close))
    return rooms

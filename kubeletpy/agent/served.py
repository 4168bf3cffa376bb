"""Builds an agent's endpoints: health checks, explain, and the kubelet's own server."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import to_builtins

from kubeletpy.agent.agent import SyncLoopHealth
from kubeletpy.agent.context import Component, Outside, Task
from kubeletpy.agent.core import Core
from kubeletpy.agent.eviction import Eviction, new_collector
from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.config import document, in_effect
from kubeletpy.config.flags import flag_texts
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.metrics.families import CONTENT_TYPE
from kubeletpy.node.build import RuntimeStart
from kubeletpy.node.runtime import RuntimeMonitor
from kubeletpy.node.stats.collector import StatsCollector, StatsViews
from kubeletpy.node.stats.collector import machine as read_machine
from kubeletpy.observe.explain.server import SOCKET_NAME, ExplainServer, Foresee
from kubeletpy.observe.explain.snapshot import RemovedPods, Snapshots
from kubeletpy.observe.explain.stuck import FILE_NAME, KeptTroubles
from kubeletpy.pods.runtime_status import ContainerStatus
from kubeletpy.server.build import KubeletServer
from kubeletpy.server.health import HealthCheck, HealthServer
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.settings import RunningProgram, log_problem
from kubeletpy.server.tls import ServingCertificate, comes_from_cluster

# HTTP handlers begin to answer when the node is Ready. The ports are bound before, and clients wait
# in the kernel's queue. Importing the handlers takes a quarter of the time of all imports, and none
# of them makes a node Ready. They are loaded soon anyway, not on the first request: by then it may
# be impossible to open files.

RETRY_S = 1.0

log = logging.getLogger(__name__)


class Served(Protocol):
    """One of the servers."""

    @property
    def code(self) -> Sequence[str]:
        """The modules that it needs to serve."""
        ...

    async def serve(self) -> None:
        """Begin to answer the clients that wait, as soon as the node is Ready."""
        ...


class Serving:
    """Has the servers answer, in order."""

    def __init__(self, servers: Sequence[Served]) -> None:
        self._servers = servers

    async def run(self) -> None:
        """Load, and begin; what serves then needs no task of its own."""
        await self._load()
        for server in self._servers:
            await server.serve()

    async def _load(self) -> None:
        names = dict.fromkeys(name for server in self._servers for name in server.code)
        stated = ""
        while True:
            try:
                # in a thread, which the event loop takes the interpreter from when it has work
                await asyncio.to_thread(_import, names)
            except (OSError, ImportError) as error:
                # no descriptor, no memory: an import that failed is tried anew as a whole
                if str(error) != stated:
                    log.error(
                        "HTTP handlers could not be imported; retrying",
                        extra={"why": str(error)},
                    )
                stated = str(error)
                await asyncio.sleep(RETRY_S)
            else:
                return


def _import(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(name)


LOG_END = 4096
"""Bytes at the end of a log that are read."""
MOST_REFUSED = 5
"""Pods named that the next start of the agent would end."""
ASKING_TAKES_S = 3.0
"""Maximum time to explain a pod that this node does not have."""


class MetricsRenderer:
    """Renders the metrics of an agent."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def render(self) -> bytes:
        """The registry as text, after counting what only a scrape shows."""
        metrics, pods = self._core.outside.metrics, self._core.state.pods
        known = (*pods.pods(), *pods.mirrors())
        metrics.pods.ephemeral_containers(sum(len(pod.ephemeral_containers) for pod in known))
        metrics.pods.in_runtime(*self._core.state.cache.counts())
        metrics.node.object_exists.set(bool(self._core.node.own.live_uid()))
        return metrics.render()


def serving_certificate(core: Core) -> tuple[ServingCertificate | None, list[Component]]:
    """The certificate that the cluster signs, and its component; None: the server has files."""
    outside = core.outside
    if outside.ports is None or not comes_from_cluster(core.settings):
        return None, []
    certificate = ServingCertificate(
        core.settings,
        core.flags,
        core.kube_api,
        outside.clock,
        node_name=core.node_name,
        node=partial(_reported_node, core),
        metrics=outside.metrics.certificates,
        rng=outside.rng,
    )
    renewal = (Task("serving-certificate", certificate.run),) if core.kube_api is not None else ()
    return certificate, [Component(certificate, renewal, start=certificate.start)]


def served(
    core: Core,
    eviction: Eviction,
    snapshots: Snapshots,
    *,
    foresee: Foresee,
    removed: RemovedPods,
    certificate: ServingCertificate | None,
    problems: Sequence[HealthCheck] = (),
) -> list[Component]:
    """The components that serve HTTP.

    ``removed`` explains removed pods. ``certificate`` is None if the server's is in files.
    ``problems`` are health checks of other parts, for explain.
    """
    settings, flags, outside, monitor = core.settings, core.flags, core.outside, core.monitor
    troubles, device_plugins = core.workers.notes.troubles, core.devices.plugins.problem
    pressure, version = eviction.pressure, core.version
    machine, metrics = outside.machine, outside.metrics
    scrape = MetricsRenderer(core)
    components: list[Component] = [Component(scrape)]
    servers: list[Served] = []
    loop_health = SyncLoopHealth(core.loop, settings.sync_frequency)
    if outside.sockets and settings.healthz_port:
        health_server = HealthServer(
            settings.healthz_bind_address,
            settings.healthz_port,
            checks=metrics.health.counted(
                {
                    "ping": lambda: "",
                    "runtime": monitor.runtime_error,
                    "syncloop": loop_health.error,
                    "device-plugin": device_plugins,
                }
            ),
            render_metrics=lambda: (scrape.render(), CONTENT_TYPE),
            render_probe_metrics=lambda: (metrics.render_probes(), CONTENT_TYPE),
        )
        components.append(
            Component(health_server, start=health_server.start, close=health_server.close)
        )
        servers.append(health_server)
    if outside.watchdog is not None:
        checks = {"log": log_problem, "syncloop": loop_health.error}
        components.append(Component(checks, (Task("watchdog", partial(outside.watchdog, checks)),)))
    of_node: list[HealthCheck] = [
        lambda: _runtime_problem(monitor, snapshots.runtime_start) or monitor.network_error(),
        device_plugins,
        *problems,
    ]
    collector = new_collector(core) if outside.ports is not None else None
    explain = ExplainServer(
        core.root / SOCKET_NAME,
        snapshots,
        core.state.traces,
        lambda: to_builtins(pressure.report()) if pressure is not None else None,
        outside.notices,
        by_limit=eviction.by_limit,
        evictions=eviction.order,
        troubles=lambda: [
            *(stated for ask in of_node if (stated := ask())),
            *_failing_watches(outside),
            *refused_at_start(core),
        ],
        foresee=foresee,
        removed=lambda namespace, name: removed.find(namespace, name, outside.clock.now()),
        elsewhere=partial(_in_api, core.kube_api) if core.kube_api is not None else None,
        log_end=partial(_log_end, settings.pod_logs_dir),
        node_name=core.node_name,
        connections=partial(_connections, outside, in_effect(settings).content_type),
        usage=partial(_usage, collector) if collector is not None else None,
        events=core.recorder.events,
        version=lambda: version.reported if version is not None else None,
    )
    if outside.ports is not None and collector is not None:
        from_runtime = core.gates.enabled("PodAndContainerStatsFromCRI")
        view = NodeView(
            node_name=core.node_name,
            pods=core.state.pods,
            cache=core.state.cache,
            runtime=outside.runtime,
            status_of=core.state.statuses.get_status,
            checks=metrics.health.counted(
                {
                    "ping": lambda: "",
                    "log": log_problem,
                    "syncloop": loop_health.error,
                    "device-plugin": device_plugins,
                }
            ),
            render_metrics=scrape.render,
            render_probe_metrics=metrics.render_probes,
            configz=lambda: document(in_effect(settings)),
            version=lambda: (
                to_builtins(reported)
                if version is not None and (reported := version.reported)
                else None
            ),
            pod_logs_dir=settings.pod_logs_dir,
            stats=StatsViews(
                collector,
                core.node_name,
                read_machine(machine.facts),
                from_runtime=outside.runtime if from_runtime else None,
                provider=metrics.http.metrics_come_from,
            ),
            render_slis=metrics.render_slis,
            allocated=core.running,
        )
        server = KubeletServer(
            outside.ports,
            view,
            outside.api.reviews if outside.api is not None else None,
            metrics=metrics.http,
            clock=outside.clock,
            node_ips=machine.node_ips,
            serving_pair=certificate.in_use if certificate is not None else None,
            node=partial(_reported_node, core),
            program=RunningProgram(
                flags=flag_texts(in_effect(settings), flags),
                started_at=core.started_at,
                version=core.options.version,
            ),
            tracer=outside.tracer,
            explained=explain,
        )
        components += [
            Component(collector, close=collector.close),
            Component(
                server,
                (Task("serving-certificate-files", server.follow_certificate, late=True),),
                start=server.start,
                close=server.close,
            ),
        ]
        servers.append(server)
        of_node.append(lambda: server.certificate_problem)
    if outside.sockets:
        components.append(Component(explain, close=explain.close))
        servers.insert(0, explain)
        kept = KeptTroubles(core.root / FILE_NAME, troubles)
        task = Task("explain-troubles", kept.run)
        components.append(Component(kept, (task,), start=kept.start, close=kept.save))
    if servers:
        serving = Serving(servers)
        components.append(Component(serving, (Task("serving", serving.run, late=True),)))
    return components


def _runtime_problem(monitor: RuntimeMonitor, start: RuntimeStart) -> str:
    """Why the runtime can't be used, and what to do."""
    why = monitor.runtime_error()
    if not why or monitor.unanswered:
        return why
    from kubeletpy.observe.explain.hints import start_runtime

    return f"{why}; {start_runtime(start)}"


def _reported_node(core: Core) -> api.Node | None:
    """The node as the API last showed it; None: not yet."""
    return core.node.manager.node if core.node.manager is not None else None


async def _usage(collector: StatsCollector) -> JSON:
    from kubeletpy.node.stats.scrapes import brief

    return brief(await collector.usage())


def _log_end(pod_logs: str, run: ContainerStatus) -> str:
    """The last text of a container's log, read without following a link that a pod may have
    made."""
    from kubeletpy.runtime_manager.read.status_source import last_log_text, read_tail

    return last_log_text(read_tail(pod_logs, run.log_path, LOG_END, container_id=run.id))


def _connections(outside: Outside, content_type: str) -> dict[str, Any] | None:
    """Those to the API server, with times in Unix seconds, and what requests are in."""
    usage = None if outside.api is None else outside.api.pods.usage
    if usage is None:
        return None
    offset = outside.clock.now() - asyncio.get_running_loop().time()
    times = {"since": usage.since, "lost_at": usage.lost_at}
    known = to_builtins(usage) | {n: None if at is None else at + offset for n, at in times.items()}
    return {**known, "content_type": content_type}


def _failing_watches(outside: Outside) -> list[str]:
    """Watches that keep failing, as sentences."""
    failing = () if outside.api is None else outside.api.pods.failing_watches.now()
    if not failing:
        return []
    from kubeletpy.observe.explain.texts import failing_watches

    return failing_watches(failing, asyncio.get_running_loop().time())


def refused_at_start(core: Core) -> list[str]:
    """Pods that the next start of the agent would not admit again, as sentences."""
    pods = core.running()
    refused = core.admission.gate.at_next_start(pods)
    if not refused:
        return []
    from kubeletpy.observe.explain.texts import one_line

    named = [
        one_line(f"pod {pod.key} runs, but the next start of the agent ends it: {refusal.text}")
        for pod in pods
        if (refusal := refused.get(pod.uid)) is not None
    ]
    more = len(named) - MOST_REFUSED
    return named[:MOST_REFUSED] + ([f"{more} more pods likewise"] if more > 0 else [])


async def _in_api(api: KubeApi, namespace: str, name: str) -> JSON | None:
    """A pod that this node does not have. Raises LookupError with why the API did not answer."""
    try:
        async with asyncio.timeout(ASKING_TAKES_S):
            return await api.get(PODS, name, namespace)
    except NotFound:
        return None
    except Forbidden as error:
        raise LookupError("the API shows this node no other pods: see kubectl get pod") from error
    except (ApiError, TimeoutError) as error:
        why = str(error) or f"nothing within {ASKING_TAKES_S:.0f} s"
        raise LookupError(f"the API does not answer: {why}") from error

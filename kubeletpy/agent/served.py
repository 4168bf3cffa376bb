"""Builds an agent's endpoints: health checks, explain, and the kubelet's own server."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from msgspec import to_builtins

from kubeletpy.agent.agent import SyncLoopHealth
from kubeletpy.agent.context import Component, Outside, Task
from kubeletpy.agent.core import Core
from kubeletpy.agent.eviction import Eviction, new_collector
from kubeletpy.base import structs
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


class Serving(structs.Component):
    """Has the servers answer, in order."""

    servers: Sequence[ExplainServer | HealthServer | KubeletServer]

    async def run(self) -> None:
        """Load, and begin; what serves then needs no task of its own."""
        await self._load()
        for server in self.servers:
            await server.serve()

    async def _load(self) -> None:
        names = dict.fromkeys(name for server in self.servers for name in server.code)
        stated = ""
        while True:
            try:
                # in a thread, which the event loop takes the interpreter from when it has work
                await asyncio.to_thread(_import, names)
            except (OSError, ImportError) as error:
                # no descriptor, no memory: an import that failed is tried anew as a whole
                if str(error) != stated:
                    log.error(
                        "HTTP handlers could not be imported; retrying", extra={"why": str(error)}
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


class MetricsRenderer(structs.Component):
    """Renders the metrics of an agent."""

    core: Core

    def render(self) -> bytes:
        """The registry as text, after counting what only a scrape shows."""
        metrics, pods = self.core.outside.metrics, self.core.state.pods
        known = (*pods.pods(), *pods.mirrors())
        metrics.pods.ephemeral_containers(sum(len(pod.ephemeral_containers) for pod in known))
        metrics.pods.in_runtime(*self.core.state.cache.counts())
        metrics.node.object_exists.set(bool(self.core.node.own.live_uid()))
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


class Endpoints(structs.Component):
    """The HTTP servers and their parts, each made when it is first needed."""

    core: Core
    eviction: Eviction
    snapshots: Snapshots
    foresee: Foresee
    removed: RemovedPods
    """Explains removed pods."""
    certificate: ServingCertificate | None
    """None: the server's is in files."""
    problems: Sequence[HealthCheck] = ()
    """Health checks of other parts, for explain."""

    @cached_property
    def scrape(self) -> MetricsRenderer:
        """Renders the metrics for a scrape."""
        return MetricsRenderer(self.core)

    @cached_property
    def loop_health(self) -> SyncLoopHealth:
        """Reports a sync loop that stands still."""
        return SyncLoopHealth(self.core.loop, self.core.settings.sync_frequency)

    def _checks(self, name: str, check: HealthCheck) -> Mapping[str, HealthCheck]:
        """The health checks of a server, one of which only it has."""
        return self.core.outside.metrics.health.counted(
            {
                "ping": lambda: "",
                name: check,
                "syncloop": self.loop_health.error,
                "device-plugin": self.core.devices.plugins.problem,
            }
        )

    @cached_property
    def health_server(self) -> HealthServer | None:
        """The server of health checks; None: it is off."""
        settings, outside = self.core.settings, self.core.outside
        if not (outside.sockets and settings.healthz_port):
            return None
        return HealthServer(
            settings.healthz_bind_address,
            settings.healthz_port,
            checks=self._checks("runtime", self.core.monitor.runtime_error),
            render_metrics=lambda: (self.scrape.render(), CONTENT_TYPE),
            render_probe_metrics=lambda: (outside.metrics.render_probes(), CONTENT_TYPE),
            render_resource_metrics=self.stats.resource_metrics if self.stats is not None else None,
        )

    @cached_property
    def collector(self) -> StatsCollector | None:
        """Collects the pods' usage; None: there is no server."""
        return new_collector(self.core) if self.core.outside.ports is not None else None

    @cached_property
    def stats(self) -> StatsViews | None:
        """Renders the pods' usage; None: there is no server."""
        core, outside, collector = self.core, self.core.outside, self.collector
        if collector is None:
            return None
        from_runtime = core.gates.enabled("PodAndContainerStatsFromCRI")
        return StatsViews(
            collector,
            core.node_name,
            read_machine(outside.machine.facts),
            from_runtime=outside.runtime if from_runtime else None,
            provider=outside.metrics.http.metrics_come_from,
        )

    @cached_property
    def explain(self) -> ExplainServer:
        """Explains pods on a socket, and through the server."""
        core, outside, eviction = self.core, self.core.outside, self.eviction
        pressure, version, collector = eviction.pressure, core.version, self.collector
        return ExplainServer(
            core.root / SOCKET_NAME,
            self.snapshots,
            core.state.traces,
            lambda: to_builtins(pressure.report()) if pressure is not None else None,
            outside.notices,
            by_limit=eviction.by_limit,
            evictions=eviction.order,
            troubles=self._troubles,
            foresee=self.foresee,
            removed=lambda namespace, name: self.removed.find(namespace, name, outside.clock.now()),
            elsewhere=partial(_in_api, core.kube_api) if core.kube_api is not None else None,
            log_end=partial(_log_end, core.settings.pod_logs_dir),
            node_name=core.node_name,
            connections=partial(_connections, outside, in_effect(core.settings).content_type),
            usage=partial(_usage, collector) if collector is not None else None,
            events=core.recorder.events,
            version=lambda: version.reported if version is not None else None,
        )

    def _troubles(self) -> list[str]:
        """The troubles of the node, as sentences."""
        core, monitor = self.core, self.core.monitor
        stated = [
            _runtime_problem(monitor, self.snapshots.runtime_start) or monitor.network_error(),
            core.devices.plugins.problem(),
            *(check() for check in self.problems),
            self.server.certificate_problem if self.server is not None else "",
        ]
        return [*filter(None, stated), *_failing_watches(core.outside), *refused_at_start(core)]

    @cached_property
    def server(self) -> KubeletServer | None:
        """The kubelet's own server; None: it has no ports."""
        core, outside, certificate = self.core, self.core.outside, self.certificate
        if outside.ports is None or self.stats is None:
            return None
        return KubeletServer(
            outside.ports,
            self._node_view(self.stats),
            outside.api.reviews if outside.api is not None else None,
            metrics=outside.metrics.http,
            clock=outside.clock,
            node_ips=outside.machine.node_ips,
            serving_pair=certificate.in_use if certificate is not None else None,
            node=partial(_reported_node, core),
            program=RunningProgram(
                flags=lambda: flag_texts(in_effect(core.settings), core.flags),
                started_at=core.started_at,
                version=core.options.version,
            ),
            tracer=outside.tracer,
            explained=self.explain,
        )

    def _node_view(self, stats: StatsViews) -> NodeView:
        core, outside, version = self.core, self.core.outside, self.core.version
        settings, metrics = core.settings, outside.metrics
        return NodeView(
            node_name=core.node_name,
            pods=core.state.pods,
            cache=core.state.cache,
            runtime=outside.runtime,
            status_of=core.state.statuses.get_status,
            checks=self._checks("log", log_problem),
            render_metrics=self.scrape.render,
            render_probe_metrics=metrics.render_probes,
            configz=lambda: document(in_effect(settings)),
            version=lambda: (
                to_builtins(reported)
                if version is not None and (reported := version.reported)
                else None
            ),
            pod_logs_dir=settings.pod_logs_dir,
            stats=stats,
            render_slis=metrics.render_slis,
            allocated=core.running,
        )

    @property
    def components(self) -> Iterator[Component]:
        """The components, in the order in which they start."""
        outside, health = self.core.outside, self.health_server
        collector, server = self.collector, self.server
        yield Component(self.scrape)
        if health is not None:
            yield Component(health, start=health.start, close=health.close)
        if outside.watchdog is not None:
            checks = {"log": log_problem, "syncloop": self.loop_health.error}
            yield Component(checks, (Task("watchdog", partial(outside.watchdog, checks)),))
        if collector is not None and server is not None:
            follow = Task("serving-certificate-files", server.follow_certificate, late=True)
            yield Component(collector, close=collector.close)
            yield Component(server, (follow,), start=server.start, close=server.close)
        explain = self.explain if outside.sockets else None
        if explain is not None:
            yield Component(explain, close=explain.close)
            kept = KeptTroubles(self.core.root / FILE_NAME, self.core.workers.notes.troubles)
            task = Task("explain-troubles", kept.run)
            yield Component(kept, (task,), start=kept.start, close=kept.save)
        servers = [each for each in (explain, health, server) if each is not None]
        if servers:
            serving = Serving(servers)
            yield Component(serving, (Task("serving", serving.run, late=True),))


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

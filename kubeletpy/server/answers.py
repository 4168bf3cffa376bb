"""The handlers of the server's routes, by name: objects, health, metrics, statistics, explanations.

It loads aiohttp; together they take a quarter of the time of all imports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.metrics.families import CONTENT_TYPE
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.node.stats.collector import StatsViews
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.server.app import Handler
from kubeletpy.server.debug import zpages
from kubeletpy.server.health import healthz_text
from kubeletpy.server.logs import follow as log_handler
from kubeletpy.server.logs.follow import LogStreams
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.routes import ROUTES
from kubeletpy.server.settings import EndpointSettings, RunningProgram, ServerSettings
from kubeletpy.server.streaming.handlers import StreamHandlers
from kubeletpy.server.streaming.link import RuntimeLink


def answers(
    view: NodeView,
    settings: ServerSettings,
    stack: AsyncExitStack,
    *,
    program: RunningProgram,
    explained: Explained | None,
    metrics: HttpMetrics,
    clock: Clock,
) -> Mapping[str, Handler]:
    """Return all handlers by route name.

    Resources that must be closed are pushed onto ``stack``.
    """
    streams = LogStreams(view.pod_logs_dir, view.cache)
    stack.callback(streams.close)
    link = RuntimeLink(settings.idle_timeout, metrics)
    logs = log_handler.handler(
        view,
        streams,
        clock,
        write_timeout=settings.idle_timeout,
        split_streams=settings.endpoints.split_log_streams,
    )
    return {
        **object_handlers(view),
        **(stats_handlers(view.stats) if view.stats is not None else {}),
        **StreamHandlers(view, link).by_route,
        **optional_handlers(
            view, settings.endpoints, program, clock, write_timeout=settings.idle_timeout
        ),
        "container_logs": logs,
        **(explain_handlers(explained) if explained is not None else {}),
    }


# The agent's own objects: pods, settings, health, metrics.


def pod_list(items: list[Any]) -> JSON:
    """Return pods as a v1 PodList."""
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}


def running_pod(status: PodRuntimeStatus) -> JSON | None:
    """Return a pod as the runtime has it, or None if no container of it runs."""
    running = status.running_containers
    if not running:
        return None
    containers = [{"name": c.name, "image": c.image, "resources": {}} for c in running]
    metadata = {"name": status.name, "namespace": status.namespace, "uid": status.uid}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


def object_handlers(view: NodeView) -> Mapping[str, Handler]:
    """Return the handlers of pods, settings, health and metrics by route name."""

    async def pods(_request: web.Request) -> web.StreamResponse:
        items: list[Any] = []
        for pod in view.pods.pods():
            obj: JSON = {**pod.object}
            if pod.is_static:
                obj["status"] = view.status(pod)
            items.append(obj)
        return _json(pod_list(items))

    async def running_pods(_request: web.Request) -> web.StreamResponse:
        found = (running_pod(status) for uid in view.cache if (status := view.cache.status(uid)))
        return _json(pod_list([pod for pod in found if pod is not None]))

    async def configz(_request: web.Request) -> web.StreamResponse:
        version = view.version()
        own = {"kubeletpy": {"kubernetesVersion": dict(version)}} if version is not None else {}
        return _json({"kubeletconfig": dict(view.configz()), **own})

    async def healthz(request: web.Request) -> web.StreamResponse:
        if (name := request.match_info.get("check")) is not None:
            check = view.checks.get(name)
            if check is None:
                return web.Response(text="404 page not found\n", status=404)
            problem = check()
            return web.Response(text=problem or "ok", status=500 if problem else 200)
        excluded = set(request.query.getall("exclude", []))
        checks = {name: check for name, check in view.checks.items() if name not in excluded}
        healthy, text = healthz_text(checks, verbose="verbose" in request.query)
        return web.Response(text=text, status=200 if healthy else 500)

    async def metrics(_request: web.Request) -> web.StreamResponse:
        logs = await view.stats.log_metrics() if view.stats is not None else b""
        return _samples(view.render_metrics() + logs)

    async def probe_metrics(_request: web.Request) -> web.StreamResponse:
        return _samples(view.render_probe_metrics())

    async def sli_metrics(_request: web.Request) -> web.StreamResponse:
        return _samples(view.render_slis())

    return {
        "pods": pods,
        "runningpods": running_pods,
        "configz": configz,
        "healthz": healthz,
        "metrics": metrics,
        "probe_metrics": probe_metrics,
        "sli_metrics": sli_metrics,
    }


def allocated_handlers(view: NodeView) -> dict[str, Handler]:
    """Return the handlers of ``/allocatedPods``: the pods with their allocated resources.

    Source: docs/reference/behaviour.md, t6.
    """

    async def pods(_request: web.Request) -> web.StreamResponse:
        return _json(pod_list([_without_status(pod) for pod in view.allocated()]))

    async def pod(request: web.Request) -> web.StreamResponse:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        uid = request.match_info.get("uid", "")
        for each in view.allocated():
            if (each.namespace, each.name) == (namespace, name) and uid in ("", each.uid):
                return _json({"kind": "Pod", "apiVersion": "v1", **_without_status(each)})
        return web.Response(status=404, text="pod not found")

    return {"allocated_pods": pods, "allocated_pod": pod}


def _without_status(pod: Pod) -> JSON:
    return {**pod.object, "status": {}}


def _samples(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


def _json(value: JSON) -> web.Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return web.Response(body=body, content_type="application/json")


# Endpoints that settings switch on and off: node logs, checkpoints, debugging. One that is off
# answers 405 with a message where the kubelet does; otherwise it does not exist. Rarely used
# endpoints are loaded by their first request.

_SECRET_FLAG = "manifest-url-header"


def optional_handlers(
    view: NodeView,
    settings: EndpointSettings,
    program: RunningProgram,
    clock: Clock,
    *,
    write_timeout: float,
) -> Mapping[str, Handler]:
    """Return the handlers of endpoints that settings switch on by route name."""

    def node_logs() -> Handler:
        from kubeletpy.server.node_logs.handler import NodeLogs

        queries = settings.system_log_query
        return NodeLogs(settings.log_dir, queries=queries, write_timeout=write_timeout).handle

    def pprof() -> Handler:
        from kubeletpy.server.debug import pprof

        return pprof.handler(_masked(sys.argv), clock)

    def checkpoint(directory: Path) -> Handler:
        from kubeletpy.server import checkpoint

        return checkpoint.handler(view, directory, clock)

    found: dict[str, Handler] = {
        "logs": _on_first_request(node_logs)
        if settings.system_logs
        else _disabled("logs endpoint is disabled.\n"),
        "pprof": _on_first_request(pprof)
        if settings.profiling
        else _disabled("profiling endpoint is disabled.\n"),
        "log_level": zpages.set_verbosity
        if settings.debug_flags
        else _disabled("flags endpoint is disabled.\n"),
    }
    if settings.checkpoint_dir is not None:
        found["checkpoint"] = _on_first_request(partial(checkpoint, settings.checkpoint_dir))
    if settings.allocated_pods:
        found |= allocated_handlers(view)
    if settings.flagz:
        found["flagz"] = zpages.flagz(program)
    if settings.statusz:
        found["statusz"] = zpages.statusz(program, zpages.folders(ROUTES), clock)
    return found


def _on_first_request(make: Callable[[], Handler]) -> Handler:
    """Return a handler that is created by its first request."""
    made = cache(make)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await made()(request)

    return handle


def _disabled(text: str) -> Handler:
    async def disabled(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=405, text=text)

    return disabled


def _masked(arguments: Sequence[str]) -> list[str]:
    """Return a command line without possible credentials."""
    masked: list[str] = []
    for argument in arguments:
        name, equals, _ = argument.lstrip("-").replace("_", "-").partition("=")
        before = masked[-1].lstrip("-").replace("_", "-") if masked else ""
        if before == _SECRET_FLAG:
            masked.append("<masked>")
        elif name == _SECRET_FLAG and equals:
            masked.append(argument.partition("=")[0] + "=<masked>")
        else:
            masked.append(argument)
    return masked


def stats_handlers(stats: StatsViews) -> Mapping[str, Handler]:
    """Return the handlers of the node's statistics by route name."""

    async def summary(request: web.Request) -> web.StreamResponse:
        only = request.query.getall("only_cpu_and_memory", []) == ["true"]
        body = await stats.summary(only_cpu_and_memory=only)
        return web.Response(body=body, content_type="application/json")

    async def cadvisor_metrics(_request: web.Request) -> web.StreamResponse:
        return _samples(await stats.cadvisor_metrics())

    async def resource_metrics(_request: web.Request) -> web.StreamResponse:
        return _samples(await stats.resource_metrics())

    return {
        "stats_summary": summary,
        "cadvisor_metrics": cadvisor_metrics,
        "resource_metrics": resource_metrics,
    }


class Explained(Protocol):
    """Explanations of the node and its pods; the answers are JSON."""

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the node, a line each."""

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return everything about a pod, or None if there is no such pod on this node."""

    def node(self) -> dict[str, Any]:
        """Return the node's pressure, and the parts that do not work."""


def explain_handlers(explained: Explained) -> Mapping[str, Handler]:
    """Return the handler of /explain, which `kubectl why` calls, by route name."""

    async def explain(request: web.Request) -> web.StreamResponse:
        if "pod" not in request.match_info:
            return _explained_json({"node": explained.node(), "pods": explained.pods()})
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        found = explained.pod(namespace, name)
        if found is None:
            return _explained_json({"error": f"no pod {namespace}/{name} on this node"}, 404)
        return _explained_json(found)

    return {"explain": explain}


def _explained_json(body: Any, status: int = 200) -> web.Response:
    return web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json"
    )

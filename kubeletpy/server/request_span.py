"""A request to the agent's server as a span, as the kubelet's filter for go-restful has it.

Each is a trace of its own, whatever the client requests: it can't have every request sampled. Must
never show a query, a header with a credential, or a body.
"""

from __future__ import annotations

from aiohttp import web

from kubeletpy.metrics.trace.model import Attributes, OpenSpan

_KUBELETS = {"{namespace}": "{podNamespace}", "{pod}": "{podID}", "{container}": "{containerName}"}
"""The kubelet's names for the parts of its routes."""


def span_name(request: web.Request) -> str:
    """The path of the route, as the kubelet writes it; empty where none answers."""
    resource = request.match_info.route.resource
    path = resource.canonical if resource is not None else ""
    for ours, kubelets in _KUBELETS.items():
        path = path.replace(ours, kubelets)
    return path


def span_attributes(request: web.Request, route: str) -> Attributes:
    """OpenTelemetry's for HTTP servers."""
    peer = request.transport.get_extra_info("peername") if request.transport else None
    given: dict[str, str | int | None] = {
        "server.address": "kubelet",
        "server.port": request.url.port,
        "http.request.method": request.method,
        "http.route": route,
        "url.scheme": request.scheme,
        "url.path": request.path,
        "network.peer.address": peer[0] if peer else None,
        "network.peer.port": peer[1] if peer else None,
        "network.protocol.version": f"{request.version.major}.{request.version.minor}",
        "user_agent.original": request.headers.get("User-Agent"),
        "client.address": request.remote,
    }
    return {name: value for name, value in given.items() if value}


def answered(span: OpenSpan, status: int) -> None:
    """Note the status of the answer."""
    span.set("http.response.status_code", status)
    if status >= 500:
        span.failed("")

"""The agent's own HTTPS API: listens, admits clients, and hands requests to handlers.

Except on the read-only port, nothing is served before authentication and authorization. Must never
show a client a traceback, and never let one client cost more than its share: heads, bodies,
connections and idle time are bounded.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohttp import web

from kubeletpy.base.host.errors import exhausted
from kubeletpy.base.structs import Component
from kubeletpy.base.wire.http_server import MAX_LINE, HttpServer
from kubeletpy.base.wire.listener import ConnectionLimiter, most_connections, peer_of
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.metrics.trace.model import NO_TRACER, Attributes, OpenSpan, Tracer
from kubeletpy.server.access import Access, AccessError, Busy
from kubeletpy.server.routes import PROXY, ROUTES, Route, canonical, refusal, verb_of
from kubeletpy.server.tls import ServingTls

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY = 64 << 10
MAX_CONNECTIONS = 4096
MAX_READ_ONLY = 512
"""Connections of the read-only port, where an address stands for an identity."""
MAX_ANSWERS = 128
"""Requests answered at once, not counting streams and those waiting for admission."""
ANSWER_S = 60.0
"""Seconds that an answer may take, including the client reading it; streams may take longer."""
PIECE = 128 << 10
"""Bytes of a large answer that are written at once."""


class AgentServer(Component):
    """Serves one port; without ``access`` it is the read-only port, without authentication."""

    # by route name; a route without a handler is not served.
    handlers: Mapping[str, Handler]
    # authenticates and authorizes; None for the read-only port.
    access: Access | None
    metrics: HttpMetrics
    # enableDebuggingHandlers.
    debugging: bool = True
    # gets admitted requests as spans.
    tracer: Tracer = NO_TRACER

    def __post_init__(self) -> None:
        self._type = "readonly" if self.access is None else "readwrite"
        self._routes: dict[str, Route] = {}
        app = web.Application(middlewares=[self._around], client_max_size=MAX_BODY)
        for route in ROUTES:
            handler = self.handlers.get(route.name)
            if self.access is None and not route.read_only:
                handler = None if not route.debugging else _debugging_off
            elif not self.debugging and (route.debugging or route.debugging_only):
                handler = _debugging_off if route.debugging else None
            if handler is None:
                continue
            for path in route.paths:
                every = route.any_method or handler is _debugging_off
                for method in ("*",) if every else route.methods:
                    added = app.router.add_route(method, path, handler)
                    assert added.resource is not None, "it has a path"
                    self._routes[added.resource.canonical] = route
        most = MAX_READ_ONLY if self.access is None else MAX_CONNECTIONS
        limiter = ConnectionLimiter(most_connections(most))
        self._http = HttpServer(app, limiter, max_line=MAX_LINE)
        self._tls: ServingTls | None = None
        self._answering = 0

    async def start(self, sock: socket.socket, tls: ServingTls | None) -> None:
        """Serve a listening socket. Without ``tls`` only the read-only port may be served."""
        if tls is None and self.access is not None:
            raise ValueError("credentials are not accepted over plain HTTP")
        self._tls = tls
        await self._http.start(sock, tls.newest if tls is not None else None)

    async def close(self) -> None:
        """Stop listening and end every connection."""
        await self._http.close()
        if self.access is not None:
            await self.access.close()

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        route = self._routes.get(resource.canonical) if resource is not None else None
        labels = self._labels(request, route)
        self.metrics.requests.labels(*labels).inc()
        inflight = self.metrics.inflight_requests.labels(*labels)
        inflight.inc()
        began = asyncio.get_running_loop().time()
        try:
            who = await self._admit(request, route)
            if not self._http.limiter.admit_identity(request.transport, who):
                raise web.HTTPTooManyRequests(
                    text=f"{who} has too many connections to this port\n",
                    headers={"Retry-After": "1", "Connection": "close"},
                )
            name = span_name(request)
            with self.tracer.request(name, partial(span_attributes, request, name)) as span:
                try:
                    response = await self._handled(request, route, handler)
                except web.HTTPException as answer:
                    response = _plain(answer)
                answered(span, response.status)
                return response
        except web.HTTPException as answer:
            return _plain(answer)
        except web.RequestPayloadError:
            return web.Response(status=400, text="the body can't be read\n")
        except TimeoutError:
            log.info("an answer took too long", extra={"path": request.path, "type": self._type})
            return web.Response(status=504, text="timed out\n")
        except Exception as error:  # noqa: BLE001 - the boundary of a request: others go on
            if isinstance(error, ConnectionError) and _is_disconnected(request):
                log.debug("client disconnected", extra={"path": request.path, "why": str(error)})
                return web.Response(status=499)
            return _broken(request, error)
        finally:
            inflight.dec()
            took = asyncio.get_running_loop().time() - began
            self.metrics.requests_duration.labels(*labels).observe(took)

    async def _handled(
        self, request: web.Request, route: Route | None, handler: Handler
    ) -> web.StreamResponse:
        target = request.rel_url
        if (path := canonical(target.raw_path)) != target.raw_path:
            query = target.raw_query_string
            raise web.HTTPMovedPermanently(f"{path}?{query}" if query else path)
        if route is not None and route.long_running:
            return await handler(request)
        return await self._answer(request, handler)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer and wait until it is sent. Time and number are bounded: answers may be large."""
        if self._answering >= MAX_ANSWERS:
            raise web.HTTPTooManyRequests(
                text="too many requests at once\n", headers={"Retry-After": "1"}
            )
        self._answering += 1
        try:
            async with asyncio.timeout(ANSWER_S) as limit:
                return await _sent(request, await handler(request))
        except TimeoutError:
            if limit.expired() and request.transport is not None:
                request.transport.abort()
            raise
        finally:
            self._answering -= 1

    async def _admit(self, request: web.Request, route: Route | None) -> str:
        """Return the client's user name, or its address on a port without authentication."""
        if self.access is None:
            return _address(request)
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if certificate and self._tls is not None and transport is not None:
            made = transport.get_extra_info("ssl_object")
            if not self._tls.trusts(made):
                # closed without an answer, as an idle connection may be: the client reconnects
                transport.abort()
                raise ConnectionResetError("the client's authority has changed")
        try:
            identity = await self.access.authenticate(
                certificate, request.headers.get("Authorization", ""), _address(request)
            )
        except Busy as error:
            raise web.HTTPTooManyRequests(text=f"{error}\n", headers={"Retry-After": "1"}) from None
        if identity is None:
            raise web.HTTPUnauthorized(text="Unauthorized")
        verb = verb_of(request.method)
        subresources = route.subresources if route is not None else PROXY
        try:
            allowed = await self.access.authorize(identity, verb, subresources)
        except AccessError as error:
            log.warning("a client can't be authorized", extra={"why": str(error)})
            listed = " ".join(subresources)
            raise web.HTTPInternalServerError(
                text=f"Authorization error (user={identity.user}, verb={verb}, resource=nodes, "
                f"subresource(s)=[{listed}])"
            ) from None
        if not allowed:
            raise web.HTTPForbidden(text=refusal(identity.user, verb, subresources))
        return identity.user

    def _labels(self, request: web.Request, route: Route | None) -> tuple[Any, ...]:
        folder = route.folder if route is not None else "other"
        long_running = "true" if route is not None and route.long_running else "false"
        method = request.method if verb_of(request.method) else "other"
        return method, folder, self._type, long_running


async def _sent(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Send a response, a large one in pieces: a single write would not wait for its reader."""
    body = response.body if isinstance(response, web.Response) else None
    if isinstance(body, bytes) and len(body) > PIECE:
        response = web.StreamResponse(status=response.status, headers=response.headers)
        response.content_length = len(body)
        await response.prepare(request)
        for start in range(0, len(body), PIECE):
            await response.write(body[start : start + PIECE])
    else:
        await response.prepare(request)
    await response.write_eof()
    return response


async def _debugging_off(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=405, text="Debug endpoints are disabled.\n")


def _address(request: web.Request) -> str:
    peer = peer_of(request.transport)
    return peer[0] if peer is not None else ""


def _is_disconnected(request: web.Request) -> bool:
    """Return whether the client has disconnected."""
    return request.transport is None or request.transport.is_closing()


def _broken(request: web.Request, error: Exception) -> web.Response:
    """Return the answer for a handler that broke: 503 if the machine lacks resources, else 500.

    Lacking are descriptors, threads or disk space. Where a part of another answer was sent, the
    connection is aborted.
    """
    about = {"path": request.path, "method": request.method}
    if request.writer.output_size and request.transport is not None:
        request.transport.abort()
    if (cause := exhausted(error)) is None:
        log.error("a request broke", extra=about, exc_info=error)
        return web.Response(status=500, text="internal error\n")
    log.warning("a request can't be answered", extra={**about, "why": str(cause)})
    return web.Response(status=503, text=f"{cause.strerror}\n", headers={"Retry-After": "1"})


def _plain(answer: web.HTTPException) -> web.Response:
    headers = {
        key: value
        for key, value in answer.headers.items()
        if key in ("Allow", "Location", "Retry-After")
    }
    made = web.Response(status=answer.status, text=answer.text or answer.reason, headers=headers)
    if answer.headers.get("Connection") == "close":
        made.force_close()
    return made


# Requests as spans, as the kubelet's filter for go-restful makes them. Each is a trace of its own:
# a client can't have all its requests sampled. Must never show a query, a credential or a body.

_KUBELETS = {"{namespace}": "{podNamespace}", "{pod}": "{podID}", "{container}": "{containerName}"}
"""The names that the kubelet has for the parts of its routes."""


def span_name(request: web.Request) -> str:
    """Return the path of the route as the kubelet writes it, or "" without a route."""
    resource = request.match_info.route.resource
    path = resource.canonical if resource is not None else ""
    for ours, kubelets in _KUBELETS.items():
        path = path.replace(ours, kubelets)
    return path


def span_attributes(request: web.Request, route: str) -> Attributes:
    """Return the attributes of OpenTelemetry for HTTP servers."""
    peer = peer_of(request.transport)
    attributes: dict[str, str | int | None] = {
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
        "client.address": peer[0] if peer else None,
    }
    return {name: value for name, value in attributes.items() if value}


def answered(span: OpenSpan, status: int) -> None:
    """Set the status of the answer in a span."""
    span.set("http.response.status_code", status)
    if status >= 500:
        span.failed("")

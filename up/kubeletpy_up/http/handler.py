"""From HTTP to the registry and back: the caller, the verb, and the answer as JSON.

Every failure is answered with a Status object; a broken request never ends in a traceback. Must
never decide what the API does: that is the registry's job.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from aiohttp import web

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.base.wire.listener import ConnectionLimiter
from kubeletpy_up import errors
from kubeletpy_up.auth import credentials
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http import bodies, query_options, responses
from kubeletpy_up.http.responses import (
    accepts_gzip,
    error_response,
    header_text,
    object_response,
    stream,
)
from kubeletpy_up.node.metrics import NodeMetrics
from kubeletpy_up.node.proxy import NodeProxy
from kubeletpy_up.pki.certificates import SubjectReader
from kubeletpy_up.pki.csr_rules import REQUESTS
from kubeletpy_up.registry.reading import Begin, read_revision
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import (
    Caller,
    Route,
    WriteOptions,
    parse_path,
    read_delete_options,
    split_path,
)
from kubeletpy_up.resources import METRICS_GROUP
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.formats import BODY_LIMIT, LARGE
from kubeletpy_up.storage.optimistic import OptimisticStore, Stale

logger = logging.getLogger(__name__)
T = TypeVar("T")

_ATTEMPTS = 5
_WAIT_S = 30.0


class Workshop:
    """Does the work of large requests. ``registry`` is the API on the loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "embedded-api")
        self._running: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a pure function on the thread."""
        if self._closed:
            raise errors.unavailable("the API is stopping")
        running = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await running

    async def write(self, work: Callable[[Registry], T]) -> T:
        """Run a function that reads and writes objects on the thread, with a registry for that.

        Raises:
            ApiError: raised by the function; 409 if the objects that it read keep changing.
        """
        loop = asyncio.get_running_loop()

        def on_loop(step: Callable[[], Any]) -> Any:
            return self._on_loop(loop, step)

        for _ in range(_ATTEMPTS):
            there = self._registry.on(OptimisticStore(self._registry.store, on_loop))
            try:
                return await self.call(work, there)
            except Stale:
                continue
        raise errors.changed_meanwhile()

    def _on_loop(self, loop: asyncio.AbstractEventLoop, step: Callable[[], Any]) -> Any:
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            if self._closed:
                done.set_exception(errors.unavailable("the API is stopping"))
                return
            try:
                done.set_result(step())
            except Exception as error:  # noqa: BLE001 - it belongs to the thread that waits
                done.set_exception(error)

        loop.call_soon_threadsafe(run)
        return done.result(_WAIT_S)

    async def close(self) -> None:
        """Refuse further work and wait for what is under way; its next write is refused."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(self._running)


_TOO_MANY = 429
_REMOVED = 410
_PUBLIC = frozenset({"healthz", "readyz", "livez", "version"})


def _bearer_token(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class Handler:
    """Answers every request. ``registry`` does the work."""

    def __init__(
        self,
        registry: Registry,
        nodes: NodeProxy | None,
        limiter: ConnectionLimiter,
        *,
        compress_watches: bool = False,
        node_metrics: bool = True,
    ) -> None:
        """Set up a handler of all requests.

        Args:
            registry: the API.
            nodes: None: requests that a node would answer are refused.
            limiter: is notified of connections whose user is known.
            compress_watches: compress watches that begin with a list.
            node_metrics: serve metrics.k8s.io, if nodes can be reached.
        """
        self._compress_watches = compress_watches
        self._registry = registry
        self._nodes = nodes
        self._metrics = NodeMetrics(registry, nodes) if nodes is not None and node_metrics else None
        self._subjects = SubjectReader()
        self._workshop = Workshop(registry)
        self._limiter = limiter

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; errors become a Status."""
        response = await self._handle(request)
        if not response.prepared and (
            # nothing more can be read from this connection, or it is one too many
            request.content.exception() is not None or response.status == _TOO_MANY
        ):
            response.force_close()
        return response

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return error_response(request, error)
        except web.HTTPRequestEntityTooLarge:
            return error_response(request, errors.too_large(BODY_LIMIT))
        except web.RequestPayloadError:
            return error_response(request, errors.bad_request("the body can't be read"))
        except (ConnectionError, asyncio.CancelledError):
            raise
        except UnicodeError:
            return error_response(request, errors.bad_request("the text is not valid Unicode"))
        except sqlite3.Error as error:
            logger.error("The API's database refused a write", extra={"error": str(error)})
            return error_response(request, errors.internal(f"the database refused: {error}"))
        except Exception:  # the boundary of a request: a broken one never harms another
            logger.exception(
                "A request failed with an internal error", extra={"path": request.path}
            )
            return error_response(request, errors.internal("the server broke on this request"))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = split_path(request.rel_url.raw_path)
        if len(parts) == 1 and parts[0] in _PUBLIC:
            if _bearer_token(request):
                self._authenticate(request)
            return responses.public(request, parts)
        caller = self._authenticate(request)
        if not self._limiter.admit_identity(request.transport, caller.user):
            raise errors.too_many_connections(caller.user)
        if self._metrics is None and parts[:2] == ["apis", METRICS_GROUP]:
            raise errors.unknown_path()
        route = parse_path(parts)
        if route is None and parts[:1] == ["openapi"]:
            return await self._workshop.call(responses.answer, request, parts)
        if route is None:
            return responses.answer(request, parts, METRICS_GROUP if self._metrics is None else "")
        if any(key.lower().startswith("impersonate-") for key in request.headers):
            raise errors.forbidden("users", "", "impersonation is not supported by this server")
        return await self._resource(request, caller, route)

    def _authenticate(self, request: web.Request) -> Caller:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        known = credentials.caller_of_certificate(certificate, self._registry.clock.now())
        if known is not None:
            return known
        token = _bearer_token(request)
        found = self._registry.authenticate_token(token) if token else None
        if found is None:
            raise errors.unauthorized()
        return found[0]

    async def _resource(
        self, request: web.Request, caller: Caller, route: Route
    ) -> web.StreamResponse:
        if route.subresource and route.info.subresource(route.subresource) is None:
            raise errors.unknown_path()
        if route.subresource and route.info.is_proxied(route.subresource):
            if self._nodes is None:
                raise errors.unavailable("this API has no way to its nodes")
            return await self._nodes.handle(request, caller, route)
        accept = request.headers.get("Accept", "")
        known = definitions.MEDIA_TYPE in accept and definitions.writes(
            route.info.group_version, route.info.kind
        )
        form = bodies.negotiate(accept, protobuf=known)
        query, method = request.query, request.method
        if method == "GET":
            # on the path of a single object only the old form, /watch/…, is a watch
            watching = route.watch or (query_options.flag(query, "watch") and not route.name)
            if watching and not route.subresource:
                return await self._watch(request, caller, route, form)
            if route.info.group == METRICS_GROUP:
                answer = await self._read_metrics(request, caller, route)
            elif self._is_large(route):
                answer = await self._workshop.write(
                    lambda registry: self._read(registry, request, caller, route)
                )
            else:
                answer = self._read(self._registry, request, caller, route)
            return await self._object(request, form, route, answer, large=self._is_large(route))
        if method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise errors.method_not_allowed(route.info.plural, method.lower(), route.info.group)
        content_type = request.headers.get("Content-Type", "")
        body, patching = await request.read(), method == "PATCH"
        sent: Any
        if route.info.refusal and method != "DELETE":
            sent = {}  # refused whatever it is, in formats too that this server can't read
        elif bodies.is_slow(body, content_type):
            sent = await self._workshop.call(bodies.decode, body, content_type, patching)
        else:
            sent = bodies.decode(body, content_type, patching)
        # a JSON patch may copy what it has copied
        large = len(body) > LARGE or "json-patch" in content_type or self._is_large(route)
        if method == "DELETE":
            answer = await self._do(
                lambda registry: self._delete(registry, request, caller, route, sent), large=large
            )
            return await self._object(request, form, route, answer, large=large)
        options = query_options.of_write(request)
        if method == "POST" and caller.node_name and route.info.key == REQUESTS:
            options.subject = await self._subjects.common_name(sent)

        def write(registry: Registry) -> tuple[int, JSON, list[str]]:
            own = replace(options, warnings=[])  # a large request may begin again
            status, answer = self._write(registry, request, caller, route, sent, options=own)
            return status, answer, own.warnings

        status, answer, warnings = await self._do(write, large=large)
        return await self._object(
            request, form, route, answer, status=status, warnings=warnings, large=large
        )

    async def _do(self, work: Callable[[Registry], T], *, large: bool) -> T:
        return await self._workshop.write(work) if large else work(self._registry)

    def _is_large(self, route: Route) -> bool:
        """Whether the object or list at a path is large."""
        store, key = self._registry.store, route.info.storage_key
        namespace = route.namespace or ""
        if route.name:
            entry = store.get(key, namespace if route.info.namespaced else "", route.name)
            return entry is not None and len(entry.text) > LARGE
        return store.weight(key, namespace or None) > LARGE

    async def close(self) -> None:
        """Refuse further large requests and wait for those under way."""
        await self._workshop.close()

    async def _read_metrics(self, request: web.Request, caller: Caller, route: Route) -> JSON:
        assert self._metrics is not None
        query = request.query
        return await self._metrics.read(
            caller, route, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )

    def _read(self, registry: Registry, request: web.Request, caller: Caller, route: Route) -> JSON:
        query, key = request.query, route.info.key
        if route.name:
            read_revision(query.get("resourceVersion", ""))
            return registry.get(
                caller, key, route.name, route.namespace, subresource=route.subresource
            )
        return registry.list(caller, key, route.namespace, options=query_options.of_list(query))

    def _write(
        self,
        registry: Registry,
        request: web.Request,
        caller: Caller,
        route: Route,
        sent: Any,
        *,
        options: WriteOptions,
    ) -> tuple[int, JSON]:
        key = route.info.key
        where = {"name": route.name, "subresource": route.subresource}
        if request.method == "PATCH":
            if not route.name:
                raise errors.method_not_allowed(route.info.plural, "patch", route.info.group)
            answer = registry.patch(
                caller,
                key,
                route.name,
                sent,
                route.namespace,
                patch_type=bodies.media_type(request.headers.get("Content-Type", "")),
                subresource=route.subresource,
                options=options,
            )
            return 201 if options.created else 200, answer
        if sent is None:
            raise errors.bad_request("the request has no body")
        if request.method == "PUT":
            if not route.name:
                raise errors.method_not_allowed(route.info.plural, "update", route.info.group)
            answer = registry.update(caller, key, sent, route.namespace, options=options, **where)
            return 201 if options.created else 200, answer
        if route.name and not route.subresource:
            raise errors.method_not_allowed(route.info.plural, "create", route.info.group)
        return 201, registry.create(caller, key, sent, route.namespace, options=options, **where)

    def _delete(
        self, registry: Registry, request: web.Request, caller: Caller, route: Route, sent: Any
    ) -> JSON:
        query = request.query
        if route.subresource:
            raise errors.method_not_served()
        options = read_delete_options(sent, dict(query))
        if route.name:
            return registry.delete(caller, route.info.key, route.name, route.namespace, options)
        return registry.delete_collection(
            caller,
            route.info.key,
            route.namespace,
            chosen=query_options.chosen(query),
            options=options,
        )

    async def _object(
        self,
        request: web.Request,
        form: bodies.Form,
        route: Route,
        answer: JSON,
        *,
        status: int = 200,
        warnings: Iterable[str] = (),
        large: bool = False,
    ) -> web.Response:
        include = bodies.read_include_object(form, request.query.get("includeObject", ""))
        now = self._registry.clock.now()

        def respond() -> web.Response:
            shaped = bodies.shape(form, route.info, answer, now=now, include_object=include)
            return object_response(request, form, shaped, status, sliced=large)

        response = await self._workshop.call(respond) if large else respond()
        for warning in warnings:
            response.headers.add("Warning", f'299 - "{header_text(warning)}"')
        return response

    async def _watch(
        self, request: web.Request, caller: Caller, route: Route, form: bodies.Form
    ) -> web.StreamResponse:
        options = query_options.of_watch(request.query, route.name)
        begin: Begin | None = None
        store, key = self._registry.store, route.info.storage_key
        if max(store.weight(key, route.namespace or None), store.weight_of_past(key)) > LARGE:
            try:
                begin = await self._workshop.write(
                    lambda registry: registry.begin_watch(
                        caller, route.info.key, route.namespace, options
                    )
                )
            except ApiError as error:
                if error.code != _REMOVED:  # that one is the watch's first event
                    raise
        subscription = self._registry.watch(caller, route.info.key, route.namespace, options, begin)
        compressed = bool(
            self._compress_watches and options.send_initial_events and accepts_gzip(request)
        )
        try:
            return await stream(
                request,
                form,
                subscription,
                self._registry.clock,
                self._workshop.call,
                compressed=compressed,
            )
        finally:
            subscription.close()

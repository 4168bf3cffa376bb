"""From HTTP to the registry and back: the caller, the verb, and the answer as JSON.

Every failure is answered with a Status object; a broken request never ends in a traceback. Must
never decide what the API does: that is the registry's job.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from kubeletpy.api.types import JSON
from kubeletpy.wire.door import Door
from kubeletpy_up import errors
from kubeletpy_up.auth import client_certificates
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http import bodies, documents, negotiation, paths, query_options
from kubeletpy_up.http.responses import accepts_gzip, error_response, header_text, object_response
from kubeletpy_up.http.streaming import stream
from kubeletpy_up.node.metrics import NodeMetrics
from kubeletpy_up.node.proxy import NodeProxy
from kubeletpy_up.pki.csr_rules import REQUESTS
from kubeletpy_up.pki.request_subjects import SubjectReader
from kubeletpy_up.registry.list_options import read_revision
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import Caller, WriteOptions, read_delete_options
from kubeletpy_up.resources import METRICS_GROUP
from kubeletpy_up.schema import protobuf
from kubeletpy_up.schema.bounds import BODY_LIMIT

logger = logging.getLogger(__name__)

_TOO_MANY = 429
_PUBLIC = frozenset({"healthz", "readyz", "livez", "version"})


class Handler:
    """Answers every request. ``registry`` does the work."""

    def __init__(
        self,
        registry: Registry,
        nodes: NodeProxy | None = None,
        *,
        compress_watches: bool = False,
    ) -> None:
        """Without ``nodes``, requests that a node would answer are refused."""
        self._compress_watches = compress_watches
        self._registry = registry
        self._nodes = nodes
        self._metrics = NodeMetrics(registry, nodes) if nodes is not None else None
        self._subjects = SubjectReader()
        self.door: Door | None = None
        """The port that is served; it is notified of connections whose user is known."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
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
        parts = paths.split(request.rel_url.raw_path)
        if parts and parts[0] in _PUBLIC:
            return documents.public(request, parts)
        caller = self._authenticate(request)
        if self.door is not None and not self.door.know(request.transport, caller.user):
            raise errors.too_many_connections(caller.user)
        route = paths.parse(parts)
        if route is None:
            return documents.answer(request, parts)
        if any(key.lower().startswith("impersonate-") for key in request.headers):
            raise errors.forbidden("users", "", "impersonation is not supported by this server")
        return await self._resource(request, caller, route)

    def _authenticate(self, request: web.Request) -> Caller:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        known = client_certificates.caller(certificate, self._registry.clock.now())
        if known is not None:
            return known
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        found = None
        if kind.lower() == "bearer" and token.strip():
            found = self._registry.authenticate_token(token.strip())
        if found is None:
            raise errors.unauthorized()
        return found[0]

    async def _resource(
        self, request: web.Request, caller: Caller, route: paths.Route
    ) -> web.StreamResponse:
        if route.subresource and route.info.subresource(route.subresource) is None:
            raise errors.unknown_path()
        if route.subresource and route.info.is_proxied(route.subresource):
            if self._nodes is None:
                raise errors.unavailable("this API has no way to its nodes")
            return await self._nodes.handle(request, caller, route)
        accept = request.headers.get("Accept", "")
        known = protobuf.MEDIA_TYPE in accept and protobuf.writes(
            route.info.group_version, route.info.kind
        )
        form = negotiation.negotiate(accept, protobuf=known)
        query, method = request.query, request.method
        if method == "GET":
            # on the path of a single object only the old form, /watch/…, is a watch
            watching = route.watch or (query_options.is_watch(query) and not route.name)
            if watching and not route.subresource:
                return await self._watch(request, caller, route, form)
            if route.info.group == METRICS_GROUP:
                answer = await self._read_metrics(request, caller, route)
            else:
                answer = self._read(request, caller, route)
            return self._object(request, form, route, answer)
        if method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise errors.method_not_allowed(route.info.plural, method.lower(), route.info.group)
        content_type = request.headers.get("Content-Type", "")
        sent = await bodies.decode(await request.read(), content_type, is_patch=method == "PATCH")
        if method == "DELETE":
            answer = self._delete(request, caller, route, sent)
            return self._object(request, form, route, answer)
        options = query_options.of_write(request)
        if method == "POST" and caller.node_name and route.info.key == REQUESTS:
            options.subject = await self._subjects.common_name(sent)
        status, answer = self._write(request, caller, route, sent, options)
        return self._object(request, form, route, answer, status=status, warnings=options.warnings)

    async def _read_metrics(self, request: web.Request, caller: Caller, route: paths.Route) -> JSON:
        if self._metrics is None:
            raise errors.unavailable("this API has no way to its nodes")
        query = request.query
        return await self._metrics.read(
            caller, route, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )

    def _read(self, request: web.Request, caller: Caller, route: paths.Route) -> JSON:
        registry, query, key = self._registry, request.query, route.info.key
        if route.name:
            read_revision(query.get("resourceVersion", ""))
            return registry.get(
                caller, key, route.name, route.namespace, subresource=route.subresource
            )
        return registry.list(
            caller,
            key,
            route.namespace,
            options=query_options.of_list(query),
        )

    def _write(
        self,
        request: web.Request,
        caller: Caller,
        route: paths.Route,
        sent: Any,
        options: WriteOptions,
    ) -> tuple[int, JSON]:
        registry, key = self._registry, route.info.key
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

    def _delete(self, request: web.Request, caller: Caller, route: paths.Route, sent: Any) -> JSON:
        registry, query = self._registry, request.query
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

    def _object(
        self,
        request: web.Request,
        form: negotiation.Form,
        route: paths.Route,
        answer: JSON,
        *,
        status: int = 200,
        warnings: Iterable[str] = (),
    ) -> web.Response:
        shaped = negotiation.shape(
            form,
            route.info,
            answer,
            now=self._registry.clock.now(),
            include_object=negotiation.read_include_object(
                form, request.query.get("includeObject", "")
            ),
        )
        response = object_response(request, form, shaped, status)
        for warning in warnings:
            response.headers.add("Warning", f'299 - "{header_text(warning)}"')
        return response

    async def _watch(
        self,
        request: web.Request,
        caller: Caller,
        route: paths.Route,
        form: negotiation.Form,
    ) -> web.StreamResponse:
        options = query_options.of_watch(request.query, route.name)
        subscription = self._registry.watch(
            caller, route.info.key, route.namespace, options=options
        )
        compressed = bool(
            self._compress_watches and options.send_initial_events and accepts_gzip(request)
        )
        try:
            return await stream(
                request, form, subscription, self._registry.clock, compressed=compressed
            )
        finally:
            subscription.close()

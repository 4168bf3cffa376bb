"""Paths that name no resource: health, version, discovery and OpenAPI."""

from __future__ import annotations

from aiohttp import web

from kubeletpy_up import errors
from kubeletpy_up.discovery import groups as discovery
from kubeletpy_up.http import negotiation
from kubeletpy_up.http.responses import json_response

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V2_PROTOBUF_ANSWER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def public(request: web.Request, parts: list[str]) -> web.StreamResponse:
    """Health and version, without authentication.

    Raises:
        ApiError: 405.
    """
    if request.method not in ("GET", "HEAD"):
        raise errors.method_not_allowed(parts[0], request.method.lower())
    if parts == ["version"]:
        return json_response(request, discovery.version_info())
    return web.Response(text="ok")


def answer(request: web.Request, parts: list[str]) -> web.StreamResponse:
    """Discovery and OpenAPI documents.

    Raises:
        ApiError: 404 for anything else, 405, 406.
    """
    if not parts or parts[0] not in ("api", "apis", "openapi"):
        if not parts and request.method == "GET":
            return json_response(request, {"paths": _ROOT_PATHS})
        raise errors.unknown_path()
    if parts[0] == "openapi":
        _only_get(request, parts)
        return _openapi(request, parts[1:])
    form = negotiation.negotiate(request.headers.get("Accept", ""))
    if len(parts) == 1 and form.kind == "discovery":
        _only_get(request, parts)
        content_type = (
            f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
        )
        found = discovery.aggregated(parts[0] == "api", form.version)
        return json_response(request, found, content_type=content_type)
    document = None
    if parts == ["api"]:
        document = discovery.api_versions(request.host)
    elif parts == ["apis"]:
        document = discovery.api_group_list()
    elif parts[0] == "api" and len(parts) == 2:
        document = discovery.resource_list("", parts[1])
    elif parts[0] == "apis" and len(parts) == 2:
        document = discovery.api_group(parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        document = discovery.resource_list(parts[1], parts[2])
    if document is None:
        raise errors.unknown_path()
    _only_get(request, parts)
    return json_response(request, document)


def _only_get(request: web.Request, parts: list[str]) -> None:
    if request.method != "GET":
        raise errors.method_not_allowed("/".join(parts), request.method.lower())


_ROOT_PATHS = [
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
]


def _openapi(request: web.Request, parts: list[str]) -> web.StreamResponse:
    from kubeletpy_up.discovery import openapi

    accept = request.headers.get("Accept", "")
    if parts == ["v2"]:
        for media, _ in negotiation.alternatives(accept or "application/json"):
            if media in (_V2_PROTOBUF, _V2_PROTOBUF_ANSWER):
                # kubectl's own parser refuses the media type that kubectl requests, for its "@".
                body = openapi.v2_protobuf()
                return json_response(request, body, content_type=_V2_PROTOBUF_ANSWER)
            if media in ("application/json", "application/*", "*/*"):
                return json_response(request, openapi.v2_json())
        raise errors.not_acceptable(("application/json", _V2_PROTOBUF))
    if parts == ["v3"]:
        return json_response(request, openapi.v3_index())
    if len(parts) > 1 and parts[0] == "v3":
        document = openapi.v3_document("/".join(parts[1:]))
        if document is not None:
            return json_response(request, document)
    raise errors.unknown_path()

"""Answers as HTTP responses: objects, paths that name no resource, errors as Status, watches.

Compressed where it pays.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.machine import architecture
from kubeletpy.base.structs import Component
from kubeletpy_up import errors
from kubeletpy_up.discovery import groups as discovery
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http import bodies
from kubeletpy_up.http.bodies import Form, alternatives
from kubeletpy_up.printers.tables import IncludeObject
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.formats import LARGE
from kubeletpy_up.schema.sliced_json import encode
from kubeletpy_up.storage.watch import Subscription, WatchEvent

_GZIP_BYTES = 128 << 10


def json_response(
    request: web.Request,
    answer: JSON | bytes,
    status: int = 200,
    content_type: str = "application/json",
    *,
    sliced: bool = False,
) -> web.Response:
    """An answer as a line of JSON, gzipped if it is large and the client accepts that.

    Bytes are sent unchanged. ``sliced``: encoded in steps, on a thread.
    """
    if isinstance(answer, bytes):
        body = answer
    elif sliced:
        body = encode(answer, ascii_only=True).encode() + b"\n"
    else:
        body = json.dumps(answer, separators=(",", ":")).encode() + b"\n"
    headers = {"Cache-Control": "no-cache, private", "Content-Type": content_type}
    if len(body) > _GZIP_BYTES and accepts_gzip(request):
        body = gzip.compress(body, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, status=status, headers=headers)


def accepts_gzip(request: web.Request) -> bool:
    """Whether the client decompresses gzip."""
    return "gzip" in request.headers.get("Accept-Encoding", "")


def object_response(
    request: web.Request, form: Form, answer: JSON, status: int = 200, *, sliced: bool = False
) -> web.Response:
    """An object or a list; as JSON if the requested protobuf would lose a field."""
    data = definitions.encode(answer) if form.protobuf else None
    if data is None:
        return json_response(request, answer, status, sliced=sliced)
    return json_response(request, data, status, definitions.MEDIA_TYPE)


def error_response(request: web.Request, error: ApiError) -> web.Response:
    """A refusal as its Status object, in what the client likes best."""
    (best, parameters), *_ = alternatives(request.headers.get("Accept", ""))
    form = Form(protobuf=best == definitions.MEDIA_TYPE and "as" not in parameters)
    response = object_response(request, form, error.status(), error.code)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def header_text(text: str) -> str:
    """A client's text as the quoted part of a header: no control characters, escaped."""
    safe = "".join(c if " " <= c < "\x7f" else "?" for c in text)
    return safe.replace("\\", "\\\\").replace('"', '\\"')


# Paths that name no resource: health, version, discovery and OpenAPI.

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V2_PROTOBUF_ANSWER = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


_CHECK = "ping"
"""The one check of this server: it answers. kube-apiserver has a line for each of its parts."""


def public(request: web.Request, parts: list[str]) -> web.StreamResponse:
    """Health and version, also for clients without credentials.

    Raises:
        ApiError: 405.
    """
    if request.method not in ("GET", "HEAD"):
        raise errors.method_not_allowed(parts[0], request.method.lower())
    if parts == ["version"]:
        return json_response(
            request, json.dumps(discovery.version_info(architecture()), indent=2).encode()
        )
    if "verbose" not in request.query:
        return web.Response(text="ok")
    excluded = set(request.query.getall("exclude", ()))
    lines = [f"[+]{_CHECK} {'excluded: ok' if _CHECK in excluded else 'ok'}\n"]
    if unknown := sorted(excluded - {_CHECK}):
        names = ", ".join(f'"{header_text(each)}"' for each in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}\n")
    return web.Response(text=f"{''.join(lines)}{parts[0]} check passed\n")


def answer(request: web.Request, parts: list[str], absent: str = "") -> web.StreamResponse:
    """Discovery and OpenAPI documents; ``absent`` is a group that is not listed.

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
    form = bodies.negotiate(request.headers.get("Accept", ""))
    if len(parts) == 1 and form.kind == "discovery":
        _only_get(request, parts)
        content_type = (
            f"application/json;g=apidiscovery.k8s.io;v={form.version};as=APIGroupDiscoveryList"
        )
        found = discovery.aggregated(parts[0] == "api", form.version, absent)
        return json_response(request, found, content_type=content_type)
    document = None
    if parts == ["api"]:
        document = discovery.api_versions(request.host)
    elif parts == ["apis"]:
        document = discovery.api_group_list(absent)
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
        for media, _ in bodies.alternatives(accept or "application/json"):
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


# Watches: events are lines of JSON, or protobuf.

Call = Callable[..., Awaitable[bytes]]
_GZIP = 16 + zlib.MAX_WBITS
_BATCH = 256
"""Maximum number of events that are written at once."""
_UNKNOWN = 1024
"""Assumed size, in bytes, of an event that is not encoded yet."""
_WRITE_SECONDS = 30.0
"""A client that reads nothing for this long is disconnected."""


async def stream(
    request: web.Request,
    form: bodies.Form,
    subscription: Subscription,
    clock: Clock,
    call: Call,
    *,
    compressed: bool = False,
) -> web.StreamResponse:
    """Send a watch's events as they come; the caller closes it.

    ``call`` runs a function on a thread, which encodes many or large events.
    ``compressed``: with a gzip member for each flush, as kube-apiserver 1.37 does it.
    """
    include = bodies.read_include_object(form, request.query.get("includeObject", ""))
    content_type = definitions.WATCH if form.protobuf else "application/json"
    headers = {"Cache-Control": "no-cache, private", "Content-Type": content_type}
    if compressed:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    writer = _Writer(form, subscription, include, clock)
    while (event := await subscription.next()) is not None:
        events = (event, *subscription.take())
        many = sum(len(each.text) if each.text is not None else _UNKNOWN for each in events)
        for start in range(0, len(events), _BATCH):
            batch = events[start : start + _BATCH]
            if many > LARGE:
                data = await call(writer.events, batch, compressed)
            else:
                data = writer.events(batch, compressed)
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await response.write(data)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                return response
    return response


def member(data: bytes) -> bytes:
    """A gzip member whose data is flushed before its end.

    Go's reader returns data before a flush at once. Data at the end of a member it returns only
    with the next member's header: without the flush, the last event waits for another.
    """
    packing = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packing.compress(data) + packing.flush(zlib.Z_SYNC_FLUSH) + packing.flush()


class _Writer(Component):
    form: bodies.Form
    subscription: Subscription
    include: IncludeObject
    clock: Clock

    def __post_init__(self) -> None:
        self._resource = self.subscription.resource
        self._first = True

    def events(self, events: Sequence[WatchEvent], compressed: bool) -> bytes:
        """Some events as they are sent at once."""
        data = b"".join(self.event(each) for each in events)
        return member(data) if compressed else data

    def event(self, event: WatchEvent) -> bytes:
        """One event as it is sent. Only the first Table carries the columns."""
        if self.form.protobuf:
            return definitions.event(event.type, event.object)
        text = event.text
        if self.form.kind != "object" and event.type not in ("ERROR", "BOOKMARK"):
            shaped = bodies.shape(
                self.form,
                self._resource,
                event.object,
                now=self.clock.now(),
                include_object=self.include,
                with_columns=self._first,
            )
            self._first = False
            text = encode(shaped, ascii_only=True)
        elif text is None:
            text = encode(event.object, ascii_only=True)
        return f'{{"type":"{event.type}","object":{text}}}\n'.encode()

"""Answers as HTTP responses: JSON or protobuf, compressed where it pays, errors as Status."""

from __future__ import annotations

import gzip
import json

from aiohttp import web

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http.negotiation import Form, alternatives
from kubeletpy_up.schema import protobuf
from kubeletpy_up.schema.sliced_json import encode

_GZIP_BYTES = 128 << 10


def json_response(
    request: web.Request,
    answer: JSON | bytes,
    status: int = 200,
    content_type: str = "application/json",
    *,
    sliced: bool = False,
) -> web.Response:
    """An answer as JSON (bytes unchanged), gzipped if it is large and the client accepts that.

    ``sliced``: encoded in steps, on a thread.
    """
    if isinstance(answer, bytes):
        body = answer
    elif sliced:
        body = encode(answer, ascii_only=True).encode()
    else:
        body = json.dumps(answer, separators=(",", ":")).encode()
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
    data = protobuf.encode(answer) if form.protobuf else None
    if data is None:
        return json_response(request, answer, status, sliced=sliced)
    return json_response(request, data, status, protobuf.MEDIA_TYPE)


def error_response(request: web.Request, error: ApiError) -> web.Response:
    """A refusal as its Status object, in what the client likes best."""
    (best, parameters), *_ = alternatives(request.headers.get("Accept", ""))
    form = Form(protobuf=best == protobuf.MEDIA_TYPE and "as" not in parameters)
    response = object_response(request, form, error.status(), error.code)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def header_text(text: str) -> str:
    """A client's text as the quoted part of a header: no control characters, escaped."""
    safe = "".join(c if " " <= c < "\x7f" else "?" for c in text)
    return safe.replace("\\", "\\\\").replace('"', '\\"')

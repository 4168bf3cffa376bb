"""Answers as HTTP responses: JSON, compressed where it pays, errors as Status."""

from __future__ import annotations

import gzip
import json

from aiohttp import web

from kubeletpy.api.types import JSON
from kubeletpy_up.errors import ApiError

_GZIP_BYTES = 128 << 10


def json_response(
    request: web.Request,
    answer: JSON | bytes,
    status: int = 200,
    content_type: str = "application/json",
) -> web.Response:
    """An answer as JSON (bytes unchanged), gzipped if it is large and the client accepts that."""
    body = (
        answer if isinstance(answer, bytes) else json.dumps(answer, separators=(",", ":")).encode()
    )
    headers = {"Cache-Control": "no-cache, private", "Content-Type": content_type}
    if len(body) > _GZIP_BYTES and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = gzip.compress(body, compresslevel=1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, status=status, headers=headers)


def error_response(request: web.Request, error: ApiError) -> web.Response:
    """A refusal as its Status object."""
    response = json_response(request, error.status(), error.code)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def header_text(text: str) -> str:
    """A client's text as the quoted part of a header: no control characters, escaped."""
    safe = "".join(c if " " <= c < "\x7f" else "?" for c in text)
    return safe.replace("\\", "\\\\").replace('"', '\\"')

"""Turns calls into HTTP requests, and responses into JSON, events and errors.

Source: the Kubernetes API conventions and ``k8s.io/apimachinery`` (ListOptions, DeleteOptions).
Must never send anything, and never put a header or a body into an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from kubeletpy.api import nulls
from kubeletpy.api.types import JSON
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.paths import resource_path
from kubeletpy.kubeapi.protocol import Call, PatchType, WatchEvent
from kubeletpy.kubeapi.transport import Response, TransportError

logger = logging.getLogger(__name__)

UNREADABLE = (ValueError, RecursionError)
"""What parsing foreign JSON may raise."""
MAX_EVENT_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request; ``url`` is path and query, ``data`` None when there is no body."""

    method: str
    url: str
    data: bytes | None
    headers: dict[str, str]


def http_call(call: Call) -> HttpCall:
    """The request for a call. Raises BadRequest for anything that cannot be in a path."""
    collection = call.verb in ("list", "watch", "deletecollection")
    name = None if collection or (call.verb == "create" and not call.name) else call.name
    path = resource_path(call.resource, call.namespace, name, call.subresource)
    query = urlencode({key: value for key, value in _query(call).items() if value})
    body = _delete_options(call) if call.verb == "delete" else call.body
    kind = call.patch_type.value if call.verb == "patch" else "application/json"
    return HttpCall(
        METHODS[call.verb],
        f"{path}?{query}" if query else path,
        None if body is None else _encode(body).encode(),
        {} if body is None else {"Content-Type": kind},
    )


def _query(call: Call) -> dict[str, str]:
    if call.verb == "patch" and call.patch_type is PatchType.APPLY:
        return {"fieldManager": "kubelet", "force": "true"}
    if call.verb == "deletecollection":
        return {"fieldSelector": call.field_selector}
    if call.verb not in ("get", "list", "watch"):
        return {}
    watch = call.verb == "watch"
    return {
        "watch": "true" if watch else "",
        "fieldSelector": call.field_selector,
        "labelSelector": call.label_selector,
        "resourceVersion": call.resource_version,
        "limit": str(call.limit) if call.limit else "",
        "continue": call.continue_,
        "timeoutSeconds": str(call.timeout_seconds) if watch else "",
        "allowWatchBookmarks": "true" if call.allow_bookmarks else "",
        "sendInitialEvents": "true" if call.send_initial_events else "",
        "resourceVersionMatch": "NotOlderThan" if call.send_initial_events else "",
    }


def _delete_options(call: Call) -> JSON:
    options: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if call.grace_period_seconds is not None:
        options["gracePeriodSeconds"] = call.grace_period_seconds
    if call.uid is not None:
        options["preconditions"] = {"uid": call.uid}
    return options


async def error_of(response: Response) -> errors.ApiError:
    """The error that a non-2xx response reports; closes the response."""
    body: Any = None
    try:
        body = json.loads(await response.read(MAX_ERROR_BYTES))
    except (TransportError, *UNREADABLE):
        body = None
    finally:
        response.close()
    header = response.header("retry-after")
    seconds = float(header) if header.isdecimal() and header.isascii() else None
    return errors.from_status(response.status, body, retry_after=seconds)


async def watch_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[WatchEvent]:
    """The events of a watch as they arrive. Raises ApiError for an ERROR event and for garbage."""
    async for line in _lines(chunks):
        if (event := _read_event(line)) is not None:
            yield event


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        first, newline, after = chunk.partition(b"\n")
        rest += first
        if len(rest) > MAX_EVENT_BYTES:
            raise errors.Unavailable(f"a watch event is larger than {MAX_EVENT_BYTES} bytes")
        if not newline:
            continue
        yield bytes(rest)
        *whole, last = after.split(b"\n")
        for line in whole:
            yield line
        rest = bytearray(last)
    if rest.strip():
        raise errors.Unavailable("the watch ended inside an event")


def _read_event(line: bytes) -> WatchEvent | None:
    if not line.strip():
        return None
    try:
        event = nulls.loads(line)
        kind, obj = event["type"], event["object"]
    except (*UNREADABLE, TypeError, KeyError):
        raise errors.Unavailable("the watch gave something that is no event") from None
    if kind == "ERROR":
        raise errors.from_status(0, obj)
    if kind not in _EVENT_TYPES or not isinstance(obj, dict):
        logger.warning("watch event ignored", extra={"type": str(kind)[:40]})
        return None
    return WatchEvent(kind, obj)

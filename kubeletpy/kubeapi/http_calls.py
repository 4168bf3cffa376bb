"""Turns calls into HTTP requests, and refusals into errors.

Source: the Kubernetes API conventions and ``k8s.io/apimachinery`` (ListOptions, DeleteOptions).
Must never send anything, and never put a header or a body into an error.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.formats import JSON_FORMAT, UNREADABLE, WireFormat
from kubeletpy.kubeapi.paths import resource_path
from kubeletpy.kubeapi.protocol import Call, PatchType
from kubeletpy.kubeapi.transport import Response, TransportError

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


class HttpCall(Struct, frozen=True):
    """A request; ``url`` is path and query, ``data`` None when there is no body."""

    method: str
    url: str
    data: bytes | None
    headers: dict[str, str]


def http_call(call: Call, form: WireFormat) -> HttpCall:
    """The request for a call. Raises BadRequest for anything that cannot be in a path."""
    collection = call.verb in ("list", "watch", "deletecollection")
    name = None if collection or (call.verb == "create" and not call.name) else call.name
    path = resource_path(call.resource, call.namespace, name, call.subresource)
    query = urlencode({key: value for key, value in _query(call).items() if value})
    data, headers = _body(call, form)
    url = f"{path}?{query}" if query else path
    return HttpCall(METHODS[call.verb], url, data, {**form.headers(call.resource), **headers})


def _body(call: Call, form: WireFormat) -> tuple[bytes | None, dict[str, str]]:
    """The body and its header."""
    obj = _delete_options(call) if call.verb == "delete" else call.body
    if obj is None:
        return None, {}
    if call.verb == "patch":
        data, kind = JSON_FORMAT.encode(obj)[0], call.patch_type.value
    else:
        assert isinstance(obj, dict), "only a patch may be a list"
        data, kind = form.encode(obj)
    return data, {"Content-Type": kind}


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


async def error_of(response: Response, form: WireFormat) -> errors.ApiError:
    """The error that a non-2xx response reports; closes the response."""
    body: Any = None
    try:
        text = await response.read(MAX_ERROR_BYTES)
        body = await form.decode(response.header("content-type"), text)
    except (TransportError, *UNREADABLE):
        body = None
    finally:
        response.close()
    header = response.header("retry-after")
    seconds = float(header) if header.isdecimal() and header.isascii() else None
    return errors.from_status(response.status, body, retry_after=seconds)

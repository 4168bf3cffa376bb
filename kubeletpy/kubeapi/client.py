"""The real Kubernetes API over HTTP: objects in and out, errors as types.

The official client loads the credentials (:mod:`kubeletpy.kubeapi.kubeconfig`). Requests use our
own transports (:mod:`kubeletpy.kubeapi.sessions`): building the client's models costs more than
the request. Must never log a header or a body, nor put one into an error.

Bounds: a client has at most CONCURRENT_REQUESTS in flight besides its watches. So a burst opens few
connections on HTTP/1.1 (each costs a handshake and 0.2 MB) and is fair to other nodes. Every
request has a deadline. A 429 or 503 with a Retry-After is retried at most RETRIES times. A 401
reloads the credentials at most every RELOAD_SECONDS and is retried once. All other failures are the
caller's to retry.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlencode

from kubeletpy.base.api import object_text
from kubeletpy.base.api.object_text import ObjectText
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi import protocol as kubeapi_protocol
from kubeletpy.kubeapi.kubeconfig import Connection, connect_kubeconfig
from kubeletpy.kubeapi.protocol import Call, WatchEvent
from kubeletpy.kubeapi.sessions import OpenTransport, Sessions
from kubeletpy.kubeapi.transport import RateLimiter, Response, TransportError, spread, why
from kubeletpy.kubeapi.watch_state import NoObserver, RequestObserver, Usage, together
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer

logger = logging.getLogger(__name__)

# Encodings of objects: JSON, unless a client gets another format.

JSON_TYPE = "application/json"
UNREADABLE = (ValueError, RecursionError)
"""Exceptions that decoding untrusted bytes may raise."""
MAX_EVENT_BYTES = 32 * 1024 * 1024
MAX_BLANK_LINES = 1000
"""In a row in a watch: a kilobyte of gzip may hold a million of them."""
_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class WireFormat(Protocol):
    """How objects are written and read. The Content-Type has an answer's format."""

    def headers(self, resource: kubeapi_protocol.Resource) -> Mapping[str, str]:
        """Headers of a request for a resource, where they differ from those of JSON."""

    def encode(self, obj: JSON) -> tuple[bytes, str]:
        """A body, and its Content-Type."""

    async def decode(self, content_type: str, body: bytes) -> Any:
        """An answer. Raises one of UNREADABLE."""

    def events(self, content_type: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[WatchEvent]:
        """The events of a watch as they arrive.

        Raises:
            ApiError: for an ERROR event, and for garbage.
        """


class JsonFormat:
    """JSON, whatever the Content-Type is; a watch has one event a line."""

    def headers(self, resource: kubeapi_protocol.Resource) -> Mapping[str, str]:
        """Return no headers: a server answers JSON unless another format is requested."""
        return {}

    def encode(self, obj: JSON | kubeapi_protocol.JSONPatch) -> tuple[bytes, str]:
        """Encode an object or a patch."""
        return _encode(obj).encode(), JSON_TYPE

    async def decode(self, content_type: str, body: bytes) -> Any:
        """Decode an object, without nulls."""
        return await decode_json(body)

    async def events(
        self, content_type: str, chunks: AsyncIterator[bytes]
    ) -> AsyncIterator[WatchEvent]:
        """Decode an event of a watch."""
        blank = 0
        async for line in _lines(chunks):
            if not line.strip():
                blank += 1
                if blank > MAX_BLANK_LINES:
                    raise no_event()
                continue
            blank = 0
            try:
                found = await decode_json(line)
                kind, obj = found["type"], found["object"]
            except (*UNREADABLE, TypeError, KeyError):
                raise no_event() from None
            if (event := event_of(kind, obj)) is not None:
                yield event


JSON_FORMAT = JsonFormat()


_objects = ObjectText()


async def decode_json(text: bytes) -> Any:
    """Decoded JSON without nulls; a large text is decoded in a thread. Raises one of UNREADABLE.

    See :mod:`kubeletpy.base.api.object_text` for what else is left out of single objects.
    """
    if len(text) <= object_text.MOST_TEXT:
        return _objects.decode(text)
    return await asyncio.to_thread(object_text.loads, text)


def event_of(kind: object, obj: object) -> WatchEvent | None:
    """A decoded event; None for one of an unknown type. Raises ApiError for an ERROR."""
    if kind == "ERROR":
        raise errors.from_status(0, obj)
    if kind not in _EVENT_TYPES or not isinstance(obj, dict):
        logger.warning("watch event ignored", extra={"type": str(kind)[:40]})
        return None
    return WatchEvent(str(kind), obj)


def no_event() -> errors.Unavailable:
    """The error for something that can't be read."""
    return errors.Unavailable("the watch gave something that is no event")


def too_large() -> errors.Unavailable:
    """The error for an event that is not read."""
    return errors.Unavailable(f"a watch event is larger than {MAX_EVENT_BYTES} bytes")


def ended_inside() -> errors.Unavailable:
    """Error raised when a watch ends in the middle of an event."""
    return errors.Unavailable("the watch ended inside an event")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        first, newline, after = chunk.partition(b"\n")
        rest += first
        if len(rest) > MAX_EVENT_BYTES:
            raise too_large()
        if not newline:
            continue
        yield bytes(rest)
        *whole, last = after.split(b"\n")
        for line in whole:
            yield line
        rest = bytearray(last)
    if rest.strip():
        raise ended_inside()


# HTTP requests of calls, and errors of refusals.
# Source: the Kubernetes API conventions and ``k8s.io/apimachinery`` (ListOptions, DeleteOptions).

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
    path = kubeapi_protocol.resource_path(call.resource, call.namespace, name, call.subresource)
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
    if call.verb == "patch" and call.patch_type is kubeapi_protocol.PatchType.APPLY:
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


CONCURRENT_REQUESTS = 10
RETRIES = 3
RETRY_AFTER_MAX = 30.0
RELOAD_SECONDS = 10.0
REQUEST_TIMEOUT = 30.0
WATCH_SLACK = 30.0


class KubeClient(kubeapi_protocol.KubeApi):
    """A :class:`~kubeletpy.kubeapi.protocol.KubeApi` over HTTP. Close it when done.

    :meth:`limited` returns clients that share the connections but have their own rate limit,
    :meth:`apart` clients that share only the credentials.
    """

    def __init__(
        self,
        connection: Connection | None,
        *,
        reconnect: Callable[[], Awaitable[Connection]] | None = None,
        qps: float = 50,
        burst: int = 100,
        timeout: float = REQUEST_TIMEOUT,
        observer: RequestObserver | None = None,
        tracer: Tracer = NO_TRACER,
        open_transport: OpenTransport | None = None,
        form: WireFormat = JSON_FORMAT,
        rng: random.Random | None = None,
    ) -> None:
        """Use a connection, or wait for one.

        Args:
            connection: where to connect and as whom; None: requests wait for ``renew_credentials``.
            reconnect: returns fresh credentials after a 401, and when requested to renew them.
            qps: requests per second (0: no limit); ``burst`` at once.
            timeout: seconds for one attempt of a request.
            observer: counts requests and responses.
            tracer: where requests are sent as spans.
            open_transport: what carries the requests; None: HTTP/2 or HTTP/1.1 over TCP.
            form: how objects are written and read.
            rng: for jitter.
        """
        self._form = form
        self._sessions = Sessions(
            connection, reconnect, observer or NoObserver(), tracer, open_transport
        )
        self._others: list[Sessions] = []
        self._rng = rng or random.Random()
        self._limiter = RateLimiter(qps, burst)
        self._under_way = asyncio.Semaphore(CONCURRENT_REQUESTS)
        self._timeout = timeout

    @classmethod
    async def from_kubeconfig(
        cls,
        path: str,
        *,
        qps: float = 50,
        burst: int = 100,
        timeout: float = REQUEST_TIMEOUT,
        observer: RequestObserver | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> KubeClient:
        """A client for a kubeconfig's current context. Raises KubeconfigError."""
        return cls(
            await connect_kubeconfig(path),
            reconnect=lambda: connect_kubeconfig(path),
            qps=qps,
            burst=burst,
            timeout=timeout,
            observer=observer,
            tracer=tracer,
        )

    def limited(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client on the same connections with its own rate limit (0: none) and timeout."""
        return self._like(self._sessions, qps, burst, timeout)

    def apart(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client with its own connections, rate limit and timeout, and this one's credentials.

        Heartbeats need one, or a busy node could be taken for dead: they never wait for other
        requests, however many connections those take. Closed with this one.
        """
        sessions = self._sessions.apart()
        self._others.append(sessions)
        return self._like(sessions, qps, burst, timeout)

    def _like(
        self, sessions: Sessions, qps: float, burst: int, timeout: float | None
    ) -> KubeClient:
        client = KubeClient(
            None,
            qps=qps,
            burst=burst,
            timeout=self._timeout if timeout is None else timeout,
            form=self._form,
            rng=self._rng,
        )
        client._sessions = sessions
        client.streamed_lists = self.streamed_lists
        client.failing_watches = self.failing_watches
        return client

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return self._sessions.host

    @property
    def usage(self) -> Usage:
        """The current load of all connections, also those of other clients of this one."""
        all_of_it = together([each.usage for each in (self._sessions, *self._others)])
        return self._sessions.losses.added_to(all_of_it)

    @property
    def watch_capacity(self) -> int:
        """Limited by the protocol, and by the streams that the server allows."""
        return self._sessions.watch_capacity

    async def renew_credentials(self) -> None:
        """Use fresh credentials for new connections; requests and watches in flight continue.

        Raises:
            KubeconfigError: there are none; the old ones stay in use.
        """
        for sessions in (self._sessions, *self._others):
            await sessions.renew()

    async def close(self) -> None:
        """Close all connections, also those of clients made by :meth:`limited`, :meth:`apart`."""
        for sessions in (self._sessions, *self._others):
            await sessions.close()

    async def answer(self, call: Call) -> JSON:
        request = http_call(call, self._form)
        async with self._under_way, self._send(request, self._timeout) as response:
            try:
                body = await response.read()
                self._answered(request, len(body))
                answer = await self._form.decode(response.header("content-type"), body)
            except (TransportError, *UNREADABLE) as error:
                raise errors.Unavailable(
                    f"{request.method} {_path(request)}: unreadable answer: {why(error)}"
                ) from error
        if not isinstance(answer, dict):
            raise errors.Unavailable(
                f"{request.method} {_path(request)}: the answer is not an object"
            )
        return answer

    async def version(self) -> bytes:
        request = HttpCall("GET", "/version", None, {})
        async with self._under_way, self._send(request, self._timeout) as response:
            try:
                body = await response.read(kubeapi_protocol.MAX_VERSION_BYTES)
            except TransportError as error:
                raise errors.Unavailable(f"GET /version: {why(error)}") from error
        self._answered(request, len(body))
        return body

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        seconds, version = call.timeout_seconds + WATCH_SLACK, call.resource_version
        async with self._send(http_call(call, self._form), seconds, lasting=True) as response:
            try:
                yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": version}})
                kind = response.header("content-type")
                async for event in self._form.events(kind, response.chunks()):
                    yield event
            except TransportError as error:
                what = f"watch of {call.resource.plural}"
                raise errors.Unavailable(f"{what}: {why(error)}") from error

    @asynccontextmanager
    async def _send(
        self, request: HttpCall, seconds: float, *, lasting: bool = False
    ) -> AsyncIterator[Response]:
        """Send until there is a final response: 2xx is yielded, then closed; the rest is raised."""
        reloaded = False
        for attempt in range(RETRIES + 2):
            await self._turn(request)
            async with self._sessions.request(
                request.method,
                request.url,
                seconds=seconds,
                connect_seconds=min(seconds, self._timeout),
                lasting=lasting,
                data=request.data,
                headers=request.headers,
                again=attempt > 0,
            ) as response:
                if response.status < 300:
                    try:
                        yield response
                    finally:
                        response.close()
                    return
                error = await error_of(response, self._form)
            if response.content_length is not None:
                self._answered(request, response.content_length)
            if isinstance(error, errors.Unauthorized) and not reloaded:
                reloaded = True
                if await self._sessions.reload(RELOAD_SECONDS):
                    continue
            wait = error.retry_after
            if error.code not in (429, 503) or wait is None or attempt >= RETRIES:
                raise error
            await asyncio.sleep(spread(min(wait, RETRY_AFTER_MAX), self._rng.random()))
        raise error

    async def _turn(self, request: HttpCall) -> None:
        waited = await self._limiter.wait()
        if waited is not None:
            self._sessions.observer.held_back(request.method, self._sessions.authority, waited)

    def _answered(self, request: HttpCall, received: int) -> None:
        self._sessions.observer.answered(request.method, self._sessions.authority, received)


def _path(request: HttpCall) -> str:
    return request.url.partition("?")[0]

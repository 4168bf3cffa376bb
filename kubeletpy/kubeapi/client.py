"""The real Kubernetes API over HTTP: plain JSON in and out, errors as types.

The official client loads the credentials (:mod:`kubeletpy.kubeapi.credentials`); requests go
through aiohttp directly, because building the client's models costs more than the request. Must
never log a header or a body.

Bounds: a client has at most CONCURRENT_REQUESTS under way besides its watches, so that a burst
opens few connections (each costs a handshake and 0.2 MB); every request has a deadline; an answer
429 or 503 that names a Retry-After is tried again at most RETRIES times; a 401 reloads the
credentials at most every RELOAD_SECONDS and is tried once more. All other failures are the
caller's to retry.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlencode

import aiohttp

from kubeletpy.api.types import JSON
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.credentials import Connection, connect_kubeconfig
from kubeletpy.kubeapi.limits import RateLimiter
from kubeletpy.kubeapi.paths import resource_path
from kubeletpy.kubeapi.protocol import JSONPatch, PatchType, Resource, WatchEvent
from kubeletpy.kubeapi.sessions import Observe, Sessions

logger = logging.getLogger(__name__)

CONCURRENT_REQUESTS = 10
RETRIES = 3
RETRY_AFTER_MAX = 30.0
RELOAD_SECONDS = 10.0
REQUEST_TIMEOUT = 30.0
WATCH_SLACK = 30.0
_UNREADABLE = (ValueError, RecursionError)
_MAX_EVENT_BYTES = 32 * 1024 * 1024
_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class KubeClient:
    """A :class:`~kubeletpy.kubeapi.protocol.KubeApi` over HTTP. Close it when done.

    :meth:`limited` gives further clients that share the connections and have their own rate.
    """

    def __init__(
        self,
        connection: Connection | None,
        *,
        reconnect: Callable[[], Awaitable[Connection]] | None = None,
        qps: float = 50,
        burst: int = 100,
        timeout: float = REQUEST_TIMEOUT,
        observe: Observe | None = None,
    ) -> None:
        """Args:
        connection: where and as whom; None: requests wait until ``renew_credentials`` knows.
        reconnect: gives fresh credentials after a 401, and when asked to renew them.
        qps: requests a second (0: no limit); ``burst`` at once.
        timeout: seconds for one try of a request.
        observe: told (HTTP code or None, HTTP method, host, seconds) of each try.
        """
        self._sessions = Sessions(connection, reconnect, observe)
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
        observe: Observe | None = None,
    ) -> KubeClient:
        """A client for a kubeconfig's current context. Raises KubeconfigError."""
        return cls(
            await connect_kubeconfig(path),
            reconnect=lambda: connect_kubeconfig(path),
            qps=qps,
            burst=burst,
            timeout=timeout,
            observe=observe,
        )

    def limited(self, *, qps: float, burst: int, timeout: float | None = None) -> KubeClient:
        """A client on the same connections with its own rate (0: none) and timeout.

        Heartbeats need one, or a busy node could look dead.
        """
        client = KubeClient.__new__(KubeClient)
        client._sessions = self._sessions
        client._limiter = RateLimiter(qps, burst)
        client._under_way = asyncio.Semaphore(CONCURRENT_REQUESTS)
        client._timeout = self._timeout if timeout is None else timeout
        return client

    @property
    def host(self) -> str:
        """Base URL of the API server."""
        return self._sessions.host

    async def renew_credentials(self) -> None:
        """Use fresh credentials for new connections; requests and watches under way go on.

        Raises:
            KubeconfigError: there are none; the old ones go on.
        """
        await self._sessions.renew()

    async def reset_connections(self) -> None:
        """Drop all connections: the next request opens a new one."""
        await self._sessions.reset()

    async def close(self) -> None:
        """Close all connections, also those of clients made by :meth:`limited`."""
        await self._sessions.close()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JSON:
        return await self._call("GET", resource_path(resource, namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str = "",
        limit: int = 0,
        continue_: str = "",
    ) -> JSON:
        query = {
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
            "resourceVersion": resource_version,
            "limit": str(limit) if limit else "",
            "continue": continue_,
        }
        return await self._call("GET", resource_path(resource, namespace), query)

    async def create(
        self,
        resource: Resource,
        obj: JSON,
        namespace: str | None = None,
        *,
        subresource: str = "",
        name: str = "",
    ) -> JSON:
        path = resource_path(resource, namespace, name or None, subresource)
        return await self._call("POST", path, body=obj)

    async def update(
        self,
        resource: Resource,
        obj: JSON,
        namespace: str | None = None,
        *,
        subresource: str = "",
        name: str = "",
    ) -> JSON:
        name = name or obj.get("metadata", {}).get("name", "")
        path = resource_path(resource, namespace, name, subresource)
        return await self._call("PUT", path, body=obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: JSON | JSONPatch,
        namespace: str | None = None,
        *,
        subresource: str = "",
        patch_type: PatchType = PatchType.STRATEGIC,
    ) -> JSON:
        path = resource_path(resource, namespace, name, subresource)
        apply = patch_type is PatchType.APPLY
        query = {"fieldManager": "kubelet", "force": "true"} if apply else {}
        return await self._call("PATCH", path, query, body=patch, content_type=patch_type.value)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_period_seconds: int | None = None,
        uid: str | None = None,
    ) -> JSON:
        options: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self._call("DELETE", resource_path(resource, namespace, name), body=options)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str,
        timeout_seconds: int,
        allow_bookmarks: bool = True,
    ) -> AsyncIterator[WatchEvent]:
        query = {
            "watch": "true",
            "fieldSelector": field_selector,
            "labelSelector": label_selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
            "allowWatchBookmarks": "true" if allow_bookmarks else "",
        }
        url = _with_query(resource_path(resource, namespace), query)
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds + WATCH_SLACK, sock_connect=self._timeout
        )
        response = await self._send("GET", url, timeout=timeout)
        try:
            yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": resource_version}})
            async for line in _lines(response.content):
                if (event := _read_event(line)) is not None:
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unavailable(f"watch of {resource.plural}: {_why(error)}") from error
        finally:
            response.close()

    async def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
    ) -> JSON:
        url = _with_query(path, query or {})
        data = None if body is None else _encode(body).encode()
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        headers = {"Content-Type": content_type} if data is not None else {}
        async with self._under_way:
            response = await self._send(method, url, timeout=timeout, data=data, headers=headers)
            try:
                answer = json.loads(await response.read())
            except (aiohttp.ClientError, TimeoutError, OSError, *_UNREADABLE) as error:
                raise errors.Unavailable(
                    f"{method} {path}: unreadable answer: {_why(error)}"
                ) from error
            finally:
                response.release()
        if not isinstance(answer, dict):
            raise errors.Unavailable(f"{method} {path}: the answer is not an object")
        return answer

    async def _send(
        self,
        method: str,
        url: str,
        *,
        timeout: aiohttp.ClientTimeout,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> aiohttp.ClientResponse:
        """Send until there is an answer to give: 2xx is returned, the rest raised."""
        reloaded = False
        for attempt in range(RETRIES + 2):
            await self._limiter.wait()
            response = await self._sessions.request(
                method, url, timeout=timeout, data=data, headers=headers or {}
            )
            if response.status < 300:
                return response
            error = await _error_of(response)
            if isinstance(error, errors.Unauthorized) and not reloaded:
                reloaded = True
                if await self._sessions.reload(RELOAD_SECONDS):
                    continue
            wait = error.retry_after
            if error.code not in (429, 503) or wait is None or attempt >= RETRIES:
                raise error
            await asyncio.sleep(min(wait, RETRY_AFTER_MAX))
        raise error


async def _error_of(response: aiohttp.ClientResponse) -> errors.ApiError:
    try:
        text = await response.content.read(1024 * 1024)
        body = json.loads(text)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, RecursionError):
        body = None
    finally:
        response.close()
    header = response.headers.get("Retry-After", "")
    seconds = float(header) if header.isdecimal() and header.isascii() else None
    return errors.from_status(response.status, body, retry_after=seconds)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in content.iter_any():
        first, newline, after = chunk.partition(b"\n")
        rest += first
        if len(rest) > _MAX_EVENT_BYTES:
            raise errors.Unavailable(f"a watch event is larger than {_MAX_EVENT_BYTES} bytes")
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
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise errors.Unavailable("the watch gave something that is no event") from None
    if kind == "ERROR":
        raise errors.from_status(0, obj)
    if kind not in _EVENT_TYPES or not isinstance(obj, dict):
        logger.warning("watch event ignored", extra={"type": str(kind)[:40]})
        return None
    return WatchEvent(kind, obj)


def _with_query(path: str, query: dict[str, str]) -> str:
    text = urlencode({key: value for key, value in query.items() if value})
    return f"{path}?{text}" if text else path


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__

"""pods/log, exec, attach, portforward and nodes/proxy: handed to the node's own server.

The API connects as itself, with its client certificate, and trusts only a server that the cluster's
authority vouches for as that node. ``nodes/NAME:PORT/proxy`` is another server on that node: it is
shown no certificate and needs none. The caller's credentials are never passed on.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp import web

from kubeletpy.base.structs import replace
from kubeletpy.base.wire import relay
from kubeletpy.base.wire.http_server import is_upgrade
from kubeletpy.base.wire.upgrade import HOP_HEADERS, UpgradeFailed, request_upgrade
from kubeletpy_up import errors
from kubeletpy_up.auth.authorizer import Request
from kubeletpy_up.errors import ApiError
from kubeletpy_up.node.targets import (
    NodeAddress,
    ProxiedNode,
    may_be_requested,
    node_address,
    pod_target,
)
from kubeletpy_up.schema.formats import BODY_LIMIT

if TYPE_CHECKING:
    import aiohttp

    from kubeletpy_up.registry.registry import Registry
    from kubeletpy_up.requests import Caller, Route

CONNECT_S = 30.0
BLOCK = 256 << 10
MAX_TEXT = 32 << 20
"""Most bytes of a node's answer that is read as a whole."""
_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_NOT_PASSED = HOP_HEADERS | {"connection", "upgrade", "accept-encoding"}
_OF_A_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "trailer", "transfer-encoding", "upgrade"}
) | {"content-length", "set-cookie", "www-authenticate"}
"""Response headers that are not passed on: between API and node, or written anew."""
_UP_TO_PROXY = re.compile(r"(?:/+[^/]+){5}")
"""``/api/v1/nodes/NAME/proxy``, whatever the name is."""
_REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}


class NodeProxy:
    """Carries requests to nodes.

    ``tls`` holds the client certificate and the authority. ``kubelet_host`` replaces the reported
    address of a node's own server, unless it is empty.
    """

    def __init__(self, registry: Registry, tls: ssl.SSLContext, kubelet_host: str = "") -> None:
        self._registry = registry
        self._tls = tls
        self._kubelet_host = kubelet_host
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close all pooled connections to nodes."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    async def handle(
        self, request: web.Request, caller: Caller, route: Route
    ) -> web.StreamResponse:
        """Answer a request for a proxied subresource.

        Raises:
            ApiError: 400, 403, 404, 405, 500, 503; a refusal by the node keeps its own code.
        """
        info, namespace = route.info, route.namespace or ""
        verb = _VERBS.get(request.method, "")
        below = info.subresource(route.subresource)
        if below is None or verb not in below.verbs:
            raise errors.method_not_allowed(info.plural, request.method.lower(), info.group)
        desired = Request(verb, info.key, route.subresource, namespace, route.name)
        self._registry.check(caller, info, desired)
        if info.plural == "nodes":
            meant = ProxiedNode.read(route.name)
            reported = meant.address(self._registry.stored(info, "", meant.name))
            address = self._reached(reported)
            target = _node_target(request)
            if not address.is_agent:
                await _check_address(address)
        else:
            found = self._registry.stored(info, namespace, route.name)
            address = self._reached(node_address(self._node_of(found)))
            target = pod_target(found, route.subresource, request.query.items())
        if is_upgrade(request):
            return await self._upgrade(request, address, target)
        if route.subresource in ("exec", "attach", "portforward"):
            raise errors.bad_request("Upgrade request required")
        return await self._pass(request, address, target, as_status=info.plural == "pods")

    async def read_text(self, node: dict[str, object], target: str) -> str:
        """A node's answer to a GET of a path with query.

        Raises:
            ApiError: 503, the node can't be reached or refuses.
        """
        import aiohttp
        from yarl import URL

        address = self._reached(node_address(node))
        session = self._session(address)
        try:
            async with session.get(
                URL(address.base + target, encoded=True),
                server_hostname=address.name,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=CONNECT_S),
            ) as answer:
                if answer.status != 200:
                    raise errors.unavailable(f"node {address.name} answers {answer.status}")
                text = bytearray()
                async for piece in answer.content.iter_any():
                    text += piece
                    if len(text) > MAX_TEXT:
                        raise errors.unavailable(f"node {address.name} answers too much")
                return text.decode("utf-8", "replace")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise errors.unavailable(f"error dialing backend: {error}") from error

    def _reached(self, reported: NodeAddress) -> NodeAddress:
        """Where to connect to a server of a node."""
        if not self._kubelet_host or not reported.is_agent:
            return reported
        return replace(reported, host=self._kubelet_host)

    def _node_of(self, pod: dict[str, object]) -> dict[str, object]:
        spec = pod.get("spec")
        name = str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""
        if not name:
            about = pod["metadata"]
            reported = about.get("name") if isinstance(about, dict) else ""
            raise errors.bad_request(f"pod {reported} does not have a host assigned")
        node = self._registry.find("nodes", "", name)
        if node is None:
            raise errors.not_found("nodes", name)
        return node

    async def _upgrade(
        self, request: web.Request, address: NodeAddress, target: str
    ) -> web.StreamResponse:
        tls: ssl.SSLContext | None = None
        if address.scheme == "https":
            tls = self._tls if address.is_agent else _unverified()
        headers = [("Host", f"{address.name}:{address.port}")]
        headers += [(k, v) for k, v in request.headers.items() if k.lower() not in HOP_HEADERS]
        try:
            answer = await request_upgrade(
                address.host,
                address.port,
                method=request.method,
                target=target,
                headers=headers,
                timeout=CONNECT_S,
                tls=tls,
                server_name=address.name,
            )
        except UpgradeFailed as error:
            raise errors.internal(f"error dialing backend: {error}") from error
        if answer.status != 101:
            text = answer.body.decode("utf-8", "replace")
            return web.Response(status=answer.status, text=text)
        return await relay.join(request, answer, idle_timeout=0)

    async def _pass(
        self, request: web.Request, address: NodeAddress, target: str, *, as_status: bool
    ) -> web.StreamResponse:
        import aiohttp
        from yarl import URL

        session = self._session(address)
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _NOT_PASSED]
        body = await request.read() if request.can_read_body else None
        try:
            answer = await session.request(
                request.method,
                URL(address.base + target, encoded=True),
                headers=headers,
                data=body,
                server_hostname=address.name if address.is_agent else None,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if as_status:
                raise errors.internal(f"error dialing backend: {error}") from error
            raise errors.unavailable(f"error trying to reach service: {error}") from error
        async with answer:
            if as_status and answer.status >= 400:
                raise await _refusal(answer)
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_reported(answer.headers)
            )
            response.content_length = answer.content_length
            await response.prepare(request)
            try:
                async for data in answer.content.iter_any():
                    await response.write(data)
            except (aiohttp.ClientError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()
        return response

    def _session(self, address: NodeAddress) -> aiohttp.ClientSession:
        import aiohttp

        session = self._sessions.get(address.is_agent)
        if session is None:
            session = self._sessions[address.is_agent] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self._tls if address.is_agent else False, limit=0
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
                read_bufsize=BLOCK,
                auto_decompress=False,
            )
        return session


def _unverified() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


async def _check_address(address: NodeAddress) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_S):
            found = await loop.getaddrinfo(address.host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise errors.bad_request(f"{address.host}: {error}") from error
    if not all(may_be_requested(str(each[4][0])) for each in found):
        raise errors.bad_request("address not allowed")


def _reported(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The answer's end-to-end headers; how it is carried is for each hop to decide."""
    named = {part.strip().lower() for part in headers.get("Connection", "").split(",")}
    reported = [pair for pair in headers.items() if pair[0].lower() not in _OF_A_HOP | named]
    return reported if "Content-Type" in headers else [*reported, ("Content-Type", "text/plain")]


async def _refusal(answer: aiohttp.ClientResponse) -> ApiError:
    """The node's refusal, as the Status that an API client reads."""
    text = (await answer.content.read(BODY_LIMIT)).decode("utf-8", "replace").strip()
    if answer.status >= 500:
        return errors.internal(text)
    return ApiError(answer.status, _REASONS.get(answer.status, "Invalid"), text)


def _node_target(request: web.Request) -> str:
    """The path and query after ``/proxy``, exactly as they were sent."""
    path, _, query = request.raw_path.partition("?")
    before = _UP_TO_PROXY.match(path)
    assert before is not None, "the path has been read as a proxy's"
    return (path[before.end() :] or "/") + (f"?{query}" if query else "")

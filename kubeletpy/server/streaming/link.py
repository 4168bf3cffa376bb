"""Connects a client's upgrade to the runtime's streaming server, relayed or translated.

The URL comes from the runtime and holds a one-time token: it must never be logged or shown. A
client's credentials are not passed on.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from kubeletpy.base.tasks import background
from kubeletpy.base.wire import upgrade
from kubeletpy.base.wire.relay import Leaving
from kubeletpy.base.wire.upgrade import (
    HOP_HEADERS,
    Headers,
    UpgradeFailed,
    UpgradeResponse,
    request_upgrade,
)
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.server.streaming.client_socket import ClientSocket, handshake
from kubeletpy.server.streaming.options import (
    TUNNEL,
    V5,
    StreamRoute,
    Streams,
    offered_protocols,
    way_of,
)
from kubeletpy.server.streaming.translate import Translation, Tunnel

log = logging.getLogger(__name__)

CONNECT_S = 30.0
CLIENT_BUFFER = 64 << 10
"""Bytes of a client that wait to be read; at twice as many it has to wait."""
_EXEC_PROTOCOL = "v4.channel.k8s.io"
_FORWARD_PROTOCOL = "portforward.k8s.io"


class _Carrier(Protocol):
    moved_at: float
    """When data last moved, by the event loop's clock."""


class RuntimeLink:
    """Passes upgrades on. ``idle_timeout`` in seconds, 0: none."""

    def __init__(self, idle_timeout: float, metrics: HttpMetrics) -> None:
        self._idle = idle_timeout
        self._metrics = metrics

    async def join(
        self, request: web.Request, url: str, subresource: str, streams: Streams | None = None
    ) -> web.StreamResponse:
        """Connect a client to the runtime's URL until either closes; no ``streams``: port-forward.

        ``subresource`` of pods, for the metrics: exec, attach or portforward.
        """
        protocols = offered_protocols(request.headers.get("Sec-WebSocket-Protocol", ""))
        way = way_of(request.headers.get("Upgrade", ""), protocols)
        try:
            if way is StreamRoute.RAW:
                answer = await self._request_upgrade(url, request.method, _passed_on(request))
                if answer.status != 101:
                    return _refusal(answer)
                return await upgrade.join(request, answer, idle_timeout=self._idle)
            if (way is StreamRoute.TUNNELLED) != (streams is None):
                return web.Response(status=400, text="this subprotocol is not for this\n")
            accepted = handshake(request, TUNNEL if streams is None else V5)
            self._metrics.websocket_streams.labels(subresource).inc()
            protocol = _FORWARD_PROTOCOL if streams is None else _EXEC_PROTOCOL
            headers = [
                ("Connection", "Upgrade"),
                ("Upgrade", "SPDY/3.1"),
                ("X-Stream-Protocol-Version", protocol),
            ]
            answer = await self._request_upgrade(url, "POST", headers)
        except UpgradeFailed as error:
            why = {"why": str(error)}
            log.warning("the runtime's streaming server can't be used", extra=why)
            return web.Response(status=502, text="the runtime's streaming server failed\n")
        if answer.status != 101:
            return _refusal(answer)
        return await self._carry(request, accepted, answer, streams)

    async def _request_upgrade(self, url: str, method: str, headers: Headers) -> UpgradeResponse:
        parts = urlsplit(url, scheme="http")  # cri-dockerd's URLs have none
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UpgradeFailed("the runtime gave no URL of a streaming server")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return await request_upgrade(
            parts.hostname,
            port,
            method=method,
            target=target,
            headers=[("Host", parts.netloc.rpartition("@")[2]), *headers],
            timeout=CONNECT_S,
            tls=tls,
        )

    async def _carry(
        self,
        request: web.Request,
        accepted: bytes,
        answer: UpgradeResponse,
        streams: Streams | None,
    ) -> web.StreamResponse:
        async with (
            _streams_of(answer) as (reader, writer),
            upgrade.streams(request, accepted, CLIENT_BUFFER) as client,
        ):
            socket = ClientSocket(*client)
            try:
                if streams is None:
                    tunnel = Tunnel(socket, reader, writer)
                    await self._until_idle(tunnel, tunnel.carry)
                else:
                    exec_ = Translation(socket, reader, writer)
                    await self._until_idle(exec_, lambda: exec_.run(streams))
            except* (ConnectionError, ValueError) as broken:
                log.debug("a stream broke", extra={"why": str(broken.exceptions[0])})
            await socket.close()
        return upgrade.TakenOver()

    async def _until_idle(
        self, carrier: _Carrier, run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        if not self._idle:
            await run()
            return
        now = asyncio.get_running_loop().time
        async with background(run()) as running:
            while not running.done():
                left = carrier.moved_at + self._idle - now()
                if left <= 0:
                    return
                await asyncio.wait({running}, timeout=left)
            await running


@asynccontextmanager
async def _streams_of(
    answer: UpgradeResponse,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """The connection of an answer as asyncio streams; closed on exit."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 18)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = answer.transport
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if answer.rest:
            reader.feed_data(answer.rest)
        transport.resume_reading()
        yield reader, writer
    finally:
        if not transport.is_closing():
            Leaving(transport, lost=writer.close)  # a writer that nobody holds closes at once


def _passed_on(request: web.Request) -> Headers:
    """A client's headers for the runtime: all except credentials and hop-by-hop headers."""
    return [
        (name, value) for name, value in request.headers.items() if name.lower() not in HOP_HEADERS
    ]


def _refusal(answer: UpgradeResponse) -> web.Response:
    text = answer.body.decode("utf-8", "replace")
    return web.Response(status=answer.status if answer.status >= 400 else 502, text=text)

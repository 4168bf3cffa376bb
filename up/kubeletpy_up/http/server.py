"""The HTTP server of the embedded API: loopback only, TLS, and a stop that ends watches at once."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Sequence

from aiohttp import web

from kubeletpy.base.structs import Component
from kubeletpy.base.wire.http_server import MAX_LINE, HttpServer
from kubeletpy.base.wire.listener import BACKLOG, ConnectionLimiter, most_connections
from kubeletpy_up.http.handler import Handler
from kubeletpy_up.node.proxy import NodeProxy
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.schema.formats import BODY_LIMIT

MAX_CONNECTIONS = 2048
IDLE_S = 3600.0
"""Seconds that a client may keep an idle connection."""


def check_loopback(host: str) -> None:
    """Refuse an address that other machines could reach.

    Raises:
        ValueError: not a loopback address.
    """
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = host == "localhost"
    if not inside:
        raise ValueError(f"the embedded API serves loopback only, not {host!r}")


class Server(Component):
    """Serves a registry.

    Args:
        registry: the API.
        tls: with the server's certificate; None for plain HTTP (kubectl sends no token over that).
        node_tls: for connections to a node's own server; None: nodes are not contacted.
        compress_watches: compress watches that begin with a list.
        node_metrics: serve metrics.k8s.io.
        kubelet_host: where a node's own server is reached; empty: at the address it reports.
    """

    registry: Registry
    tls: ssl.SSLContext | None
    node_tls: ssl.SSLContext | None = None
    compress_watches: bool = False
    node_metrics: bool = True
    kubelet_host: str = ""

    def __post_init__(self) -> None:
        self._nodes: NodeProxy | None = None
        if self.node_tls is not None:
            self._nodes = NodeProxy(self.registry, self.node_tls, self.kubelet_host)
        self._handler: Handler | None = None
        self._http: HttpServer | None = None

    async def start(self, host: str, port: int, listening: Sequence[socket.socket] = ()) -> int:
        """Listen; returns the port (a free one if 0 was given). ``listening``: more sockets.

        Raises:
            ValueError: ``host`` is not loopback.
            OSError: the port is taken.
        """
        check_loopback(host)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
        port = int(sock.getsockname()[1])
        limiter = ConnectionLimiter(most_connections(MAX_CONNECTIONS))
        self._handler = Handler(
            self.registry,
            self._nodes,
            limiter,
            compress_watches=self.compress_watches,
            node_metrics=self.node_metrics,
        )
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", r"/{path:[\s\S]*}", self._handler.handle)
        self._http = HttpServer(app, limiter, idle_s=IDLE_S, max_line=MAX_LINE)
        tls = self.tls
        for each in (sock, *listening):
            await self._http.start(each, None if tls is None else lambda: tls)
        return port

    async def stop(self) -> None:
        """End all watches and connections."""
        self.registry.close()
        if self._http is not None:
            await self._http.close()
            self._http = None
        if self._handler is not None:
            await self._handler.close()
            self._handler = None
        if self._nodes is not None:
            await self._nodes.close()

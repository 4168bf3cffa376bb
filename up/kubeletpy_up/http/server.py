"""The HTTP server of the embedded API: loopback only, TLS, and a stop that ends watches at once."""

from __future__ import annotations

import ipaddress
import socket
import ssl

from aiohttp import web

from kubeletpy.base.wire.http_server import http_log, set_up
from kubeletpy.base.wire.listener import BACKLOG, Listener, guarded, most_connections
from kubeletpy_up.http.handler import Handler
from kubeletpy_up.node.proxy import NodeProxy
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.schema.formats import BODY_LIMIT

_STOP_SECONDS = 1.0
MAX_CONNECTIONS = 2048
MAX_LINE = 64 << 10
"""Most bytes of a request line: the command of an exec is in its query."""


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


class Server:
    """Serves a registry.

    Args:
        registry: the API.
        tls: with the server's certificate; None for plain HTTP (kubectl sends no token over that).
        node_tls: for connections to a node's own server; None: nodes are not contacted.
        compress_watches: compress watches that begin with a list.
    """

    def __init__(
        self,
        registry: Registry,
        tls: ssl.SSLContext | None,
        node_tls: ssl.SSLContext | None = None,
        *,
        compress_watches: bool = False,
    ) -> None:
        self._registry = registry
        self._nodes = NodeProxy(registry, node_tls) if node_tls is not None else None
        self._tls = tls
        self._compress_watches = compress_watches
        self._runner: web.AppRunner | None = None
        self._handler: Handler | None = None
        self._listener: Listener | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (a free one if 0 was given).

        Raises:
            ValueError: ``host`` is not loopback.
            OSError: the port is taken.
        """
        check_loopback(host)
        app = web.Application(client_max_size=BODY_LIMIT)
        handler = Handler(self._registry, self._nodes, compress_watches=self._compress_watches)
        app.router.add_route("*", r"/{path:[\s\S]*}", handler.handle)
        # Cancelling the handler of a client that went away frees its watch at once.
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=_STOP_SECONDS,
            logger=http_log,
            max_line_size=MAX_LINE,
        )
        serve = await set_up(runner)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with socket.create_server((host, port), family=family, backlog=BACKLOG) as listening:
                limited = guarded(listening, most_connections(MAX_CONNECTIONS))
        except OSError:
            await runner.cleanup()
            raise
        handler.limiter = limited.limiter
        self._handler = handler
        self._listener = Listener(limited, serve, self._tls)
        self._listener.start()
        self._runner = runner
        return int(limited.getsockname()[1])

    async def stop(self) -> None:
        """End all watches and connections."""
        self._registry.close()
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._handler is not None:
            await self._handler.close()
            self._handler = None
        if self._nodes is not None:
            await self._nodes.close()

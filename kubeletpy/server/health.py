"""The agent's listening sockets, and its plain HTTP endpoints: /healthz and, on loopback, metrics.

The endpoints have no authentication: on any other address (healthzBindAddress) the agent reports
only whether a check fails, not why, as the kubelet does, and serves no metrics. Must never show any
pod content. Must not import aiohttp before it serves: no node needs that to be Ready.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kubeletpy.base.structs import Component
from kubeletpy.base.wire.listener import BACKLOG, ConnectionLimiter
from kubeletpy.metrics.families import CONTENT_TYPE
from kubeletpy.probes.handlers.outcome import host_port
from kubeletpy.server.routes import ServerError

if TYPE_CHECKING:
    from aiohttp import web

    from kubeletpy.base.wire.http_server import HttpServer


# Listening sockets; connections are limited and accepted elsewhere (:mod:`kubeletpy.base.wire`).

GIVE_UP_MS = 60_000
"""Milliseconds after which the kernel drops a plain connection that accepts no data."""
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""Errors of a kernel without IPv6 (``ipv6.disable``, or not built)."""


def listen(address: str, port: int, *, short_answers: bool = False) -> socket.socket:
    """Return a listening socket; port 0 picks a free one. Raises OSError.

    ``0.0.0.0`` and ``::`` both mean all addresses of IPv4 and IPv6, whatever the kernel's
    ``bindv6only`` is, as for the kubelet (docs/reference/config.csv: address). A kernel without
    IPv6 has those of IPv4.

    Args:
        address: an IP address.
        short_answers: no client may take longer than GIVE_UP_MS to read an answer, even after the
            answer has been handed to the kernel and the connection closed.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if not parsed.is_unspecified:
        return _listen(str(parsed), port, v6_only=True, short_answers=short_answers)
    try:
        return _listen("::", port, v6_only=False, short_answers=short_answers)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _listen("0.0.0.0", port, v6_only=False, short_answers=short_answers)


def _listen(address: str, port: int, *, v6_only: bool, short_answers: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6_only)
        if short_answers:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GIVE_UP_MS)
        made.bind((address, port))
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return made


def is_free(address: str, port: int) -> bool:
    """Return whether no program listens at a port; the address may be unusable otherwise."""
    try:
        listen(address, port).close()
    except ValueError:
        return True  # it is not an address
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def free_port(address: str) -> int:
    """Return a free TCP port that the kernel uses for no outgoing connection, chosen at random."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    draw = random.SystemRandom()  # a seed would give several processes the same port
    while not is_free(address, port := draw.randrange(first // 2, first)):
        pass
    return port


def next_free_port(address: str, port: int, excluded: Collection[int] = ()) -> int:
    """Return the first free port after one, or 0 if there is none.

    People find it more easily than one that the kernel chooses, and the kernel uses ports of this
    range for no outgoing connection.
    """
    after = (each for each in range(port + 1, 65536) if each not in excluded)
    return next((each for each in after if is_free(address, each)), 0)


def listen_error(field: str, flag: str, address: str, port: int, error: OSError) -> ServerError:
    """Return why the agent can't listen on the port of a configuration field, and the remedy."""
    text = f"{field}: can't listen on {host_port(address, port)}: {error.strerror or error}; "
    if error.errno != errno.EADDRINUSE:
        return ServerError(f"{text}choose another {field} or another address")
    return ServerError(
        f"{text}`ss -ltnp 'sport = :{port}'` shows the program that does, such as another kubelet. "
        f"Stop it, or choose another port: kubeletpy run … {flag}={next_free_port(address, port)}, "
        f"or {field} in the file of --config"
    )


log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
"""Pods on the host's network reach this port too. There is no authentication, so that a connection
ends with its first answer, and is closed sooner when its address opens too many."""
HealthCheck = Callable[[], str]
"""Returns the problem, or "" when healthy."""
WITHHELD = "reason withheld"


def healthz_text(
    checks: Mapping[str, HealthCheck], *, verbose: bool, reasons: bool = True
) -> tuple[bool, str]:
    """Return whether all checks pass, and the body: ``ok``, or one line per check."""
    lines, healthy = [], True
    for name, check in checks.items():
        problem = check()
        healthy = healthy and not problem
        why = problem if reasons else WITHHELD
        lines.append(f"[-]{name} failed: {why}" if problem else f"[+]{name} ok")
    if healthy and not verbose:
        return True, "ok"
    lines.append("healthz check passed" if healthy else "healthz check failed")
    return healthy, "\n".join(lines) + "\n"


class HealthServer(Component):
    """Serves /healthz[/CHECK], and on this machine /metrics, /metrics/probes and /metrics/resource.

    Attributes:
        code: the modules that ``serve`` needs besides those that are loaded with this one.
    """

    code: ClassVar[Sequence[str]] = ("aiohttp.web", "kubeletpy.base.wire.http_server")

    address: str
    # 0 picks a free one.
    port: int
    checks: Mapping[str, HealthCheck]
    # the first two return body and content type.
    render_metrics: Callable[[], tuple[bytes, str]]
    render_probe_metrics: Callable[[], tuple[bytes, str]] | None = None
    render_resource_metrics: Callable[[], Awaitable[bytes]] | None = None

    def __post_init__(self) -> None:
        self._local = ipaddress.ip_address(self.address).is_loopback
        self._socket: socket.socket | None = None
        self._http: HttpServer | None = None

    async def start(self) -> None:
        """Listen; clients wait until ``serve``. Raises ServerError when the port is taken."""
        try:
            self._socket = listen(self.address, self.port, short_answers=True)
        except OSError as error:
            flag = "--healthz-port"
            raise listen_error("healthzPort", flag, self.address, self.port, error) from error
        self.port = int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests; call it after ``start``."""
        from aiohttp import web

        from kubeletpy.base.wire.http_server import HttpServer

        app = web.Application()
        app.on_response_prepare.append(_close_after)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/healthz/{check}", self._one_check)
        if self._local:
            app.router.add_get("/metrics", self._metrics)
        if self._local and self.render_probe_metrics is not None:
            app.router.add_get("/metrics/probes", self._probe_metrics)
        if self._local and self.render_resource_metrics is not None:
            app.router.add_get("/metrics/resource", self._resource_metrics)
        assert self._socket is not None, "it has been started"
        self._http = HttpServer(app, ConnectionLimiter(MAX_CONNECTIONS))
        await self._http.start(self._socket)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._http is not None:
            await self._http.close()
        elif self._socket is not None:
            self._socket.close()

    async def _healthz(self, request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        checks = {name: c for name, c in self.checks.items() if name not in excluded}
        verbose = "verbose" in request.query
        healthy, text = healthz_text(checks, verbose=verbose, reasons=self._local)
        return _text(text, 200 if healthy else 500)

    async def _one_check(self, request: web.Request) -> web.Response:
        check = self.checks.get(request.match_info["check"])
        if check is None:
            return _text("no such check\n", 404)
        problem = check()
        if problem and not self._local:
            return _text(f"internal server error: {WITHHELD}\n", 500)
        return _text(problem or "ok", 500 if problem else 200)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return _samples(*self.render_metrics())

    async def _probe_metrics(self, _request: web.Request) -> web.Response:
        assert self.render_probe_metrics is not None, "there is no such route without it"
        return _samples(*self.render_probe_metrics())

    async def _resource_metrics(self, _request: web.Request) -> web.Response:
        assert self.render_resource_metrics is not None, "there is no such route without it"
        return _samples(await self.render_resource_metrics(), CONTENT_TYPE)


async def _close_after(_request: web.Request, response: web.StreamResponse) -> None:
    response.force_close()


def _text(text: str, status: int) -> web.Response:
    from aiohttp import web

    return web.Response(text=text, status=status)


def _samples(body: bytes, content_type: str) -> web.Response:
    from aiohttp import web

    return web.Response(body=body, headers={"Content-Type": content_type})

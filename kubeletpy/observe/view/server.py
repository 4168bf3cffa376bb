"""Serves the page of a node on loopback: one static file, and a stream of its data.

The token in the path grants access; other users of the machine, and pages of other sites in the
same browser, do not have it. The requested host name has to be one of this machine, so that a site
whose name points here gets no access. Only GET is served, and nothing changes anything.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from kubeletpy.base.tasks import run_together
from kubeletpy.base.wire.http_server import HttpServer
from kubeletpy.base.wire.listener import ConnectionLimiter
from kubeletpy.node.stats.collector import Shared
from kubeletpy.observe.view import feed
from kubeletpy.observe.view.drawing import source_hash
from kubeletpy.observe.view.feed import History
from kubeletpy.server.health import listen

Query = Callable[..., Any]
"""Returns the answer to GET /part/part/… of the agent; blocks.

That about an unknown pod is ``{"error", "last"}``. Raises Silent if the agent does not answer."""
PATIENCE_S = 0.5
"""Seconds that a page waits for numbers of usage, since the runtime may be slow."""


class Silent(Exception):
    """Raised with the reason if the agent does not answer."""


class Watcher:
    """Queries the agent for all open pages together, at most once a second.

    Nothing is queried without an open page. Create it inside a running event loop.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._history = History()
        self._node = Shared(lambda: self._query_agent("node"))
        self._pods = Shared(lambda: self._query_agent("pods"))
        self._usage = Shared(self._used)
        self._last: dict[str, Any] = {}

    async def page(self, path: str | None) -> dict[str, Any]:
        """Return all parts of the page; ``path``: NAMESPACE/NAME of the pod that is open.

        While the agent is silent there is only the part ``node``, which reports it.
        Raises ValueError if no pod can have that name.
        """
        try:
            about, lines = await self._node.get(), await self._pods.get()
            opened = None if path is None else await self._pod(*feed.names(path))
        except Silent as error:
            return {"node": feed.unanswered(str(error), self._last)}
        await self._refresh_usage()
        self._last = feed.node(about)
        return {
            "node": self._last,
            "pods": feed.pods(lines),
            "pod": opened,
            "usage": feed.usage(self._history, "" if opened is None else opened["uid"]),
        }

    async def _pod(self, namespace: str, name: str) -> dict[str, Any]:
        where = "pods", namespace, name
        parts = ((), ("timeline",), ("events",), ("logs",))
        answer, timeline, events, logs = await run_together(
            *(self._query_agent(*where, *part) for part in parts)
        )
        return feed.pod(answer, timeline, events if isinstance(events, list) else (), logs)

    async def _refresh_usage(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._usage.get()
        except (Silent, TimeoutError):
            return  # the last numbers stay

    async def _used(self) -> None:
        self._history.add(await self._query_agent("usage"))

    async def _query_agent(self, *parts: str) -> Any:
        return await asyncio.to_thread(self._query, *parts)


ADDRESS = "127.0.0.1"
HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine. Any port: it may be forwarded from another one."""
MAX_STREAMS = 8
MAX_CONNECTIONS = 64
EVERY_S = 1.0
WRITE_S = 10.0
"""Seconds after which a page that takes nothing is disconnected."""

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of each answer: they keep the address with its token secret, and other sites out."""


def page() -> str:
    """Return the static file."""
    return (
        resources.files("kubeletpy.observe.view").joinpath("page.html").read_text(encoding="utf-8")
    )


def policy(html: str) -> str:
    """Return the content security policy of a page: its own script, style and stream."""
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{source_hash(script)}'",
            f"style-src '{source_hash(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


class ViewServer:
    """Serves the page and its stream to a few browsers of this machine.

    Attributes:
        streams: how many pages are open now.
    """

    def __init__(self, query: Query, *, port: int = 0, every: float = EVERY_S) -> None:
        """Set up a server; ``port`` 0 picks a free one, ``every``: seconds between two updates."""
        self._query = query
        self._port = port
        self._every = every
        self._token = secrets.token_urlsafe(24)
        self._page = page()
        self._policy = policy(self._page)
        self._watcher: Watcher | None = None
        self.streams = 0
        app = web.Application(middlewares=[self._admit])
        app.on_response_prepare.append(_head)
        app.router.add_get("/{token}/", self._show, allow_head=False)
        app.router.add_get("/{token}/stream", self._stream, allow_head=False)
        self._http = HttpServer(app, ConnectionLimiter(MAX_CONNECTIONS))

    @property
    def url(self) -> str:
        """Returns the URL with the token; the port is known once the server is started."""
        return f"http://{ADDRESS}:{self._port}/{self._token}/"

    async def start(self) -> None:
        """Listen on loopback. Raises OSError."""
        self._watcher = Watcher(self._query)
        sock = listen(ADDRESS, self._port, short_answers=True)
        self._port = int(sock.getsockname()[1])
        await self._http.start(sock)

    async def close(self) -> None:
        """Stop listening and close all connections."""
        await self._http.close()

    @web.middleware
    async def _admit(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if not is_this_machine(request.headers.getall("Host", [])):
            raise _refused(web.HTTPMisdirectedRequest, "this is not a name of this machine")
        token = request.path.split("/")[1].encode()
        if not hmac.compare_digest(token, self._token.encode()):
            raise _refused(web.HTTPNotFound, "use the address that `kubeletpy view` has printed")
        if not self._http.limiter.admit_identity(request.transport, "viewer"):
            raise _refused(web.HTTPServiceUnavailable, "too many connections")
        return await handler(request)

    async def _show(self, _request: web.Request) -> web.Response:
        return web.Response(
            text=self._page,
            content_type="text/html",
            headers={"Content-Security-Policy": self._policy},
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        assert self._watcher is not None, "it has been started"
        path = request.query.get("pod")
        try:
            if path is not None:
                feed.names(path)
        except ValueError as error:
            raise _refused(web.HTTPBadRequest, str(error)) from error
        if self.streams >= MAX_STREAMS:
            raise _refused(web.HTTPServiceUnavailable, f"{MAX_STREAMS} pages are open already")
        self.streams += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            response.force_close()
            await response.prepare(request)
            await self._send(response, self._watcher, path)
        except (ConnectionError, TimeoutError):
            pass  # the page was closed, or takes nothing
        finally:
            self.streams -= 1
        return response

    async def _send(self, response: web.StreamResponse, watcher: Watcher, path: str | None) -> None:
        """Send a message each second: the time, and the parts that have changed."""
        sent: dict[str, Any] = {}
        while True:
            now = await watcher.page(path)
            message = {"at": round(time.time(), 3), **feed.changes(sent, now)}
            sent = {**sent, **now}
            data = json.dumps(message, ensure_ascii=True, separators=(",", ":"))
            async with asyncio.timeout(WRITE_S):
                await response.write(f"data: {data}\n\n".encode())
            await asyncio.sleep(self._every)


def is_this_machine(hosts: list[str]) -> bool:
    """Return whether there is exactly one Host header, with a name of this machine."""
    if len(hosts) != 1:
        return False
    try:
        found = urlsplit(f"//{hosts[0]}")
        return found.hostname in HOSTS and found.netloc == hosts[0] and "@" not in hosts[0]
    except ValueError:
        return False


def _refused(kind: type[web.HTTPException], why: str) -> web.HTTPException:
    made = kind(text=f"{why}\n")
    made.force_close()
    return made


async def _head(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'")

"""A Kubernetes API with scripted answers: on loopback, and in memory on virtual time."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import ApiError, Invalid
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import Call, KubeApi, WatchEvent
from tests.http2.certificates import Certificates
from tests.http2.front import in_front_of

FRONT: Certificates | None = None
"""If set, servers without TLS are reached through a proxy with HTTP/2 and this certificate."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class ApiServer:
    """Answers each request with the next of ``answers``, and repeats the last one."""

    url: str = ""
    trust: ssl.SSLContext | None = None
    answers: list[Handler] = field(default_factory=list)
    requested: list[Asked] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        body = json.loads(text) if text else None
        self.requested.append(
            Asked(request.method, request.path, dict(request.query), dict(request.headers), body)
        )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)


@asynccontextmanager
async def serving(*answers: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[ApiServer]:
    server = ApiServer(answers=list(answers))
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        if FRONT is not None and tls is None:
            async with in_front_of(server.url, FRONT.server()) as front:
                server.url, server.trust = front.url, FRONT.client()
                yield server
                assert front.accepted <= 3, "requests share a connection"
        else:
            yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_client(
    *answers: Handler, **options: Any
) -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    """A server, and a client of it that is closed first."""
    async with serving(*answers) as server:
        api = KubeClient(Connection(server.url, server.trust, "Bearer t0ken"), **options)
        try:
            yield server, api
        finally:
            await api.close()


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return handler


def failure(
    code: int, reason: str, message: str = "no", headers: dict[str, str] | None = None
) -> Handler:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return answer(status, code, headers)


def raw(text: str, status: int = 200) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return handler


def never() -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return handler


def stream(*chunks: bytes) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        return response

    return handler


def lines(*events: Any) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


Step = WatchEvent | ApiError | float
"""Step of a watch: an event, an error that ends it, or seconds to wait."""


class ScriptedApi(KubeApi):
    """Lists and watches are answered in order; writes by ``write_errors``, then by success."""

    def __init__(
        self,
        lists: Sequence[Any] = (),
        watches: Sequence[Sequence[Step]] = (),
        write_errors: Sequence[ApiError] = (),
        *,
        streams_lists: bool = False,
    ) -> None:
        self._streams_lists = streams_lists
        self.lists = list(lists)
        self.watches = list(watches)
        self.write_errors = list(write_errors)
        self.calls: list[tuple[float, str, Any]] = []
        self._awaited = 0
        self._reached = asyncio.Event()

    def note(self, verb: str, what: Any) -> None:
        self.calls.append((round(asyncio.get_running_loop().time(), 3), verb, what))
        if len(self.calls) >= self._awaited:
            self._reached.set()

    async def called(self, times: int) -> None:
        """Waits until the given number of calls was made."""
        self._awaited = times
        if len(self.calls) < times:
            self._reached.clear()
            await self._reached.wait()

    async def answer(self, call: Call) -> JSON:
        if call.verb == "list":
            return await self._list(call)
        what: Any = call.name if call.verb == "delete" else call.body
        self.note(call.verb, what)
        if self.write_errors:
            raise self.write_errors.pop(0)
        return what if isinstance(what, dict) else {}

    async def _list(self, call: Call) -> JSON:
        self.note("list", (call.limit, call.continue_))
        if not self.lists:
            await asyncio.Event().wait()
        found = self.lists.pop(0)
        if isinstance(found, ApiError):
            raise found
        return found  # type: ignore[no-any-return]

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        if call.send_initial_events:
            if not self._streams_lists:  # as a server that has the feature off
                raise Invalid("sendInitialEvents is forbidden for watch", code=422)
            self.note("stream", call.resource_version)
        else:
            self.note("watch", call.resource_version)
        if not self.watches:
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, ApiError):
                raise step
            if isinstance(step, WatchEvent):
                yield step
            else:
                await asyncio.sleep(step)

"""A scripted Kubernetes API server on loopback: fixed answers, and a record of requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
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

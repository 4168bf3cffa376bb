"""Clients that disconnect before their answer is sent are not logged as errors."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import pytest
from aiohttp import web

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.server.app import AgentServer

ASK = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def exchange(handler: Callable[[web.Request], object]) -> bytes:
    """All bytes that a client gets from a server with this handler until the connection ends."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler(request)  # type: ignore[misc, no-any-return]

    server = AgentServer({"healthz": handle}, None, HttpMetrics(Families()))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        await server.start(sock, None)
        try:
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(ASK)
            try:
                return await reader.read()
            except ConnectionError:
                return b"reset"
            finally:
                writer.close()
        finally:
            await server.close()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno > logging.DEBUG]


def leaves(request: web.Request) -> None:
    """Disconnect the client before the server's loop has noticed."""
    assert request.transport is not None
    request.transport.abort()


async def answers(request: web.Request) -> web.StreamResponse:
    leaves(request)
    return web.Response(text="x")


async def answers_much(request: web.Request) -> web.StreamResponse:
    leaves(request)
    return web.Response(body=b"x" * (1 << 20))


async def upgrades(request: web.Request) -> web.StreamResponse:
    leaves(request)
    made = web.StreamResponse()
    await made.prepare(request)
    return made


async def refuses(request: web.Request) -> web.StreamResponse:
    leaves(request)
    raise ConnectionResetError("the client's authority has changed")


@pytest.mark.parametrize("handler", [answers, answers_much, upgrades, refuses])
async def test_a_disconnected_client_is_not_logged(
    handler: Callable[[web.Request], object], caplog: pytest.LogCaptureFixture
) -> None:
    assert await exchange(handler) in (b"", b"reset")
    assert logged(caplog) == []


async def test_a_bug_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        leaves(request)
        raise ValueError("a bug")

    assert await exchange(breaks) in (b"", b"reset")
    assert logged(caplog) == ["a request broke"]


async def test_a_connection_of_the_handlers_own_that_breaks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks(_: web.Request) -> web.StreamResponse:
        raise ConnectionRefusedError(111, "nobody listens")

    assert (await exchange(breaks)).endswith(b"\r\n\r\ninternal error\n")
    assert logged(caplog) == ["a request broke"]


async def test_half_an_answer_is_never_continued_with_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        made = web.StreamResponse()
        made.content_length = 1 << 20
        await made.prepare(request)
        await made.write(b"half")
        raise ValueError("a bug")

    assert b"internal error" not in await exchange(breaks)
    assert logged(caplog) == ["a request broke"]

"""httpGet probes over cleartext HTTP/2 against servers on loopback, honest and hostile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeletpy.base.tasks import Turns
from kubeletpy.probes.handlers import actions, http2
from kubeletpy.probes.handlers.actions import Resolver
from kubeletpy.probes.handlers.http_messages import request_for
from kubeletpy.probes.handlers.outcome import KEPT_OUTPUT, HandlerResult, Reply
from tests.http2.server import Exchange, serving_http2
from tests.kit.probes import answering, serving, silence
from tests.unit.probes.handlers.test_grpc_floods import FLOODS, IN_FLIGHT, LOOPBACK, flooding
from tests.unit.probes.handlers.test_network_handlers import AMPLE, OK, TIMEOUT, closed_port

Request = dict[str, str]
Responds = Callable[[Request], tuple[int, dict[str, str], bytes]]


@asynccontextmanager
async def speaking(respond: Responds) -> AsyncIterator[int]:
    """Runs a cleartext HTTP/2 server; yields its port."""

    async def answer(exchange: Exchange) -> None:
        status, headers, body = respond(exchange.headers)
        exchange.head(status, headers)
        await exchange.write(body, last=True)

    async with serving_http2(answer) as server:
        yield server.port


def always(status: int, body: bytes = b"", **headers: str) -> Responds:
    return lambda _: (status, headers, body)


async def probe(port: int, timeout: float = AMPLE, **action: Any) -> Reply:
    request = request_for({"port": port, **action}, (), LOOPBACK, "kube-probe/1.37")  # type: ignore[typeddict-item]
    exchange = http2.exchange(Turns())
    async with asyncio.timeout(timeout + 20):
        return await actions.probe(Resolver(), request, timeout, exchange)


@pytest.mark.parametrize(
    ("status", "answer", "output"),
    [
        (200, HandlerResult.SUCCESS, ""),
        (299, HandlerResult.SUCCESS, ""),
        (302, HandlerResult.WARNING, "Probe terminated redirects, Response body: "),
        (399, HandlerResult.WARNING, "Probe terminated redirects, Response body: "),
        (400, HandlerResult.FAILURE, "HTTP probe failed with statuscode: 400"),
        (503, HandlerResult.FAILURE, "HTTP probe failed with statuscode: 503"),
    ],
)
async def test_statuses(status: int, answer: HandlerResult, output: str) -> None:
    async with speaking(always(status)) as port:
        assert await probe(port) == Reply(answer, output)


async def test_the_request() -> None:
    heard: list[Request] = []

    def respond(request: Request) -> tuple[int, dict[str, str], bytes]:
        heard.append(request)
        return 200, {}, b""

    headers = [
        {"name": "X-Probe", "value": " yes "},
        {"name": "Host", "value": "web.example"},
        {"name": "Upgrade", "value": "websocket"},
        {"name": "Keep-Alive", "value": "5"},
        {"name": "TE", "value": "gzip"},
    ]
    async with speaking(respond) as port:
        assert (
            await probe(port, path="/a b?c=d", httpHeaders=headers)
        ).answer is HandlerResult.SUCCESS
    (request,) = heard
    agent = request.pop("user-agent")
    assert agent == "kube-probe/1.37"
    assert request == {
        ":method": "GET",
        ":scheme": "http",
        ":authority": "web.example",
        ":path": "/a%20b?c=d",
        "x-probe": "yes",
        "accept": "*/*",
    }


@pytest.mark.parametrize("size", [1, KEPT_OUTPUT, 50_000, 1_000_000])
async def test_a_large_body_is_read_only_as_far_as_it_is_kept(size: int) -> None:
    async with speaking(always(200, b"x" * size)) as port:
        reply = await probe(port)
    assert reply == Reply(HandlerResult.SUCCESS, "x" * min(size, KEPT_OUTPUT))


async def test_redirects() -> None:
    def respond(request: Request) -> tuple[int, dict[str, str], bytes]:
        if request[":path"] == "/":
            return 301, {"location": "/next"}, b"over there"
        return 200, {}, request[":path"].encode()

    async with speaking(respond) as port:
        assert await probe(port) == Reply(HandlerResult.SUCCESS, "/next")
    async with speaking(always(302, location="http://elsewhere.example/")) as port:
        assert (await probe(port)).answer is HandlerResult.WARNING
    async with speaking(always(302, location="/")) as port:
        assert "stopped after 10 redirects" in (await probe(port)).output
    secure = f"https://{LOOPBACK}/"
    async with speaking(always(302, location=secure)) as port:
        assert "does not follow redirects to https" in (await probe(port)).output


async def test_a_server_of_http_1_fails() -> None:
    """Prior knowledge has no fallback to HTTP/1."""
    async with serving(answering(OK)) as port:
        reply = await probe(port)
    url = f"http://{LOOPBACK}:{port}/"
    assert reply == Reply(
        HandlerResult.FAILURE, f'Get "{url}": the server speaks HTTP/1, not HTTP/2'
    )


async def test_ports_that_refuse_or_never_answer() -> None:
    assert "connection refused" in (await probe(closed_port())).output
    async with serving(silence) as port:
        assert "context deadline exceeded" in (await probe(port, TIMEOUT)).output


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_of_frames_ends_the_probe(kind: str) -> None:
    async with flooding(*FLOODS[kind]) as (port, sent):
        reply = await probe(port, 60)
    expected = HandlerResult.SUCCESS if kind == "data" else HandlerResult.FAILURE
    assert reply.answer is expected
    assert "deadline" not in reply.output, "it ended long before its time was up"
    assert sent() < IN_FLIGHT

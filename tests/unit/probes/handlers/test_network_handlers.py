"""HTTP, TCP and gRPC handlers against real servers on loopback, honest and hostile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health  # type: ignore[attr-defined]  # not in its stubs

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.base.tasks import Turns
from kubeletpy.base.wire.listener import curves
from kubeletpy.probes.handlers import actions, grpc_health, http2
from kubeletpy.probes.handlers.actions import Resolver
from kubeletpy.probes.handlers.http_messages import ResponseReader, request_for
from kubeletpy.probes.handlers.outcome import HandlerError, HandlerResult, Reply
from tests.http2.server import Exchange, serving_http2
from tests.kit.probes import Talk, answering, certificate, dripping, redirecting, serving, silence

LOOPBACK = "127.0.0.1"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TIMEOUT = 0.4
"""Seconds for servers that do not answer."""
AMPLE = 30.0
"""Seconds for servers that answer at once, on a busy machine."""


@pytest.fixture
def resolver() -> Any:
    return Resolver()


async def probe(resolver: Resolver, port: int, timeout: float = AMPLE, **action: Any) -> Reply:
    request = request_for({"port": port, **action}, (), LOOPBACK, "probe")  # type: ignore[typeddict-item]
    async with asyncio.timeout(timeout + 20):  # a busy machine takes longer, endless work longest
        return await actions.probe(resolver, request, timeout)


@pytest.mark.parametrize(
    ("status", "answer", "output"),
    [
        (200, HandlerResult.SUCCESS, "ok"),
        (299, HandlerResult.SUCCESS, "ok"),
        (302, HandlerResult.WARNING, "Probe terminated redirects, Response body: ok"),
        (399, HandlerResult.WARNING, "Probe terminated redirects, Response body: ok"),
        (400, HandlerResult.FAILURE, "HTTP probe failed with statuscode: 400"),
        (503, HandlerResult.FAILURE, "HTTP probe failed with statuscode: 503"),
    ],
)
async def test_statuses(
    resolver: Resolver, status: int, answer: HandlerResult, output: str
) -> None:
    async with serving(answering(OK.replace(b"200", b"%d" % status))) as port:
        assert await probe(resolver, port) == Reply(answer, output)


async def test_https_with_an_untrusted_certificate(resolver: Resolver, tmp_path: Path) -> None:
    heard: list[bytes] = []
    async with serving(answering(OK, heard), certificate(tmp_path)) as port:
        assert (await probe(resolver, port, scheme="HTTPS")).answer is HandlerResult.SUCCESS
        plain = await probe(resolver, port)
    assert heard
    assert heard[0].startswith(b"GET / HTTP/1.1\r\n")
    assert plain.answer is HandlerResult.FAILURE


async def test_https_to_a_server_that_speaks_http(resolver: Resolver) -> None:
    async with serving(answering(b"HTTP/1.1 400 Bad\r\n\r\n")) as port:

        async def at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        async with serving(at_once) as other:
            reply = await probe(resolver, other, scheme="https")
            assert "server gave HTTP response to HTTPS client" in reply.output
        assert (await probe(resolver, port)).answer is HandlerResult.FAILURE


async def test_a_host_by_name_and_ipv6(resolver: Resolver) -> None:
    async with serving(answering(OK)) as port:
        assert (await probe(resolver, port, host="localhost")).answer is HandlerResult.SUCCESS
        missing = await probe(resolver, port, host="nobody.invalid")
        assert missing.answer is HandlerResult.FAILURE
        broken = await probe(resolver, port, host="a" * 70 + ".example")
        assert broken.answer is HandlerResult.FAILURE
    if socket.has_ipv6:
        with contextlib.suppress(OSError):
            server = await asyncio.start_server(answering(OK), "::1", 0)
            port = server.sockets[0].getsockname()[1]
            assert (await probe(resolver, port, host="::1")).answer is HandlerResult.SUCCESS
            server.close()


async def test_all_addresses_of_a_name_are_tried(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``::1`` is the first of ``localhost`` on many machines, and most servers listen on IPv4."""
    real = socket.getaddrinfo

    def both(_host: str, port: int, **how: Any) -> list[Any]:
        loopback = real(LOOPBACK, port, **how)
        return [(socket.AF_INET6, *loopback[0][1:4], ("::1", port, 0, 0)), *loopback, *loopback]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    async with serving(answering(OK)) as port:
        assert (await probe(resolver, port, host="two.example")).answer is HandlerResult.SUCCESS
        connected = await actions.connect(resolver, "two.example", port, AMPLE)
        assert connected.answer is HandlerResult.SUCCESS
    refused = await actions.connect(resolver, "two.example", port, AMPLE)
    assert refused.answer is HandlerResult.FAILURE
    assert refused.output.startswith(f"dial tcp two.example:{port}: ")


async def test_redirects_on_the_host_are_followed_ten_requests_long(resolver: Resolver) -> None:
    async with serving(redirecting(lambda n: f"/{n}")) as port:
        reply = await probe(resolver, port)
        assert reply.answer is HandlerResult.FAILURE
        assert reply.output.endswith("stopped after 10 redirects")
    async with (
        serving(answering(OK)) as end,
        serving(redirecting(lambda n: f"http://{LOOPBACK}:{end}/")) as port,
    ):
        assert await probe(resolver, port) == Reply(HandlerResult.SUCCESS, "ok")


async def test_a_redirect_elsewhere_is_a_warning_and_nobody_is_asked(resolver: Resolver) -> None:
    async with serving(redirecting(lambda n: "http://169.254.169.254/secrets")) as port:
        reply = await probe(resolver, port)
    assert reply == Reply(HandlerResult.WARNING, "Probe terminated redirects, Response body: over")


async def test_the_body_of_a_redirect_that_is_followed_is_not_read(resolver: Resolver) -> None:
    """A body of 10,240 chunks in each of ten redirects took ten times as long as in one answer."""

    async def again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        if request.startswith(b"GET /end "):
            writer.write(OK)
        else:
            head = b"HTTP/1.1 302 Found\r\nLocation: /end\r\nTransfer-Encoding: chunked\r\n\r\n"
            writer.write(head)
            await reader.read()  # it never starts with the body

    async with serving(again) as port:
        assert await probe(resolver, port) == Reply(HandlerResult.SUCCESS, "ok")


async def test_a_redirect_with_a_long_target_fails(resolver: Resolver) -> None:
    async with serving(redirecting(lambda n: "/" + "x" * (actions.MAX_LOCATION - 1))) as port:
        assert (await probe(resolver, port)).output.endswith("stopped after 10 redirects")
    async with serving(redirecting(lambda n: "/" + "x" * actions.MAX_LOCATION)) as port:
        assert "the Location header is longer than 8192" in (await probe(resolver, port)).output


async def test_the_status_decides_about_a_body_of_too_many_chunks(resolver: Resolver) -> None:
    for status, answer in ((200, HandlerResult.SUCCESS), (503, HandlerResult.FAILURE)):
        head = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status
        async with serving(dripping(head + b"1\r\nx\r\n" * 10_240)) as port:
            assert (await probe(resolver, port)).answer is answer


async def test_an_answer_in_single_bytes_is_read_seldom(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that arrives during a pause takes one read: 4,000 segments in far fewer reads."""
    reads = 0
    feed = ResponseReader.feed

    def counted(reader: ResponseReader, data: bytes) -> None:
        nonlocal reads
        reads += 1
        feed(reader, data)

    monkeypatch.setattr(ResponseReader, "feed", counted)

    async def single(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in b"HTTP/1.1 200 OK\r\nX: %s\r\nContent-Length: 2\r\n\r\nok" % (b"x" * 4000):
            writer.write(bytes((byte,)))
            await asyncio.sleep(0)

    async with serving(single) as port:
        assert await probe(resolver, port) == Reply(HandlerResult.SUCCESS, "ok")
    assert reads < 1000


async def test_a_server_with_another_curve_gets_that_curve(
    resolver: Resolver, tmp_path: Path
) -> None:
    for curve in curves():
        context = certificate(tmp_path)
        context.set_ecdh_curve(curve)
        async with serving(answering(OK), context) as port:
            assert await probe(resolver, port, scheme="HTTPS") == Reply(HandlerResult.SUCCESS, "ok")


HOSTILE = {
    "silence": (silence, "context deadline exceeded"),
    "dripping head": (dripping(b"HTTP/1.1 200 OK\r\nX: "), "context deadline exceeded"),
    "dripping lines": (dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), "context deadline exceeded"),
    "dripping body": (
        dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"),
        "context deadline exceeded",
    ),
    "huge head": (
        dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 5000, 0),
        "response headers exceeded",
    ),
    "interim for ever": (
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.001),
        "more than 64 interim responses",
    ),
    "chunks of nothing": (
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"\n" * 262144, 0),
        "malformed chunked encoding",
    ),
    "another protocol": (dripping(b"SSH-2.0-x\r\n"), "malformed HTTP response"),
    "cut body": (answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"), "unexpected EOF"),
    "nothing": (answering(b""), "EOF"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_servers_fail_in_time(resolver: Resolver, name: str) -> None:
    talk: Talk
    talk, parts = HOSTILE[name]
    never = parts == "context deadline exceeded"
    async with serving(talk) as port:
        reply = await probe(resolver, port, TIMEOUT if never else AMPLE)
    assert reply.answer is HandlerResult.FAILURE
    assert parts in reply.output


async def test_an_endless_body_is_read_up_to_a_limit(resolver: Resolver) -> None:
    async with serving(dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 4096, 0)) as port:
        assert await probe(resolver, port) == Reply(HandlerResult.SUCCESS, "x" * 10240)


async def test_a_hanging_tls_handshake_leaves_nothing_behind(resolver: Resolver) -> None:
    async with serving(silence) as port:
        reply = await probe(resolver, port, TIMEOUT, scheme="https")
        assert "deadline exceeded" in reply.output
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert tasks == []


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        return int(sock.getsockname()[1])


async def test_refused_connections(resolver: Resolver) -> None:
    port = closed_port()
    reply = await probe(resolver, port)
    assert reply.output == (
        f'Get "http://{LOOPBACK}:{port}/": dial tcp {LOOPBACK}:{port}: connect: connection refused'
    )
    assert await actions.connect(resolver, LOOPBACK, port, TIMEOUT) == Reply(
        HandlerResult.FAILURE, f"dial tcp {LOOPBACK}:{port}: connect: connection refused"
    )


async def test_tcp(resolver: Resolver) -> None:
    async with serving(silence) as port:
        assert (
            await actions.connect(resolver, LOOPBACK, port, TIMEOUT)
        ).answer is HandlerResult.SUCCESS
        assert (
            await actions.connect(resolver, "localhost", port, TIMEOUT)
        ).answer is HandlerResult.SUCCESS


async def test_tcp_times_out(resolver: Resolver) -> None:
    with socket.socket() as full:
        full.bind((LOOPBACK, 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex((LOOPBACK, port))
        reply = await actions.connect(resolver, LOOPBACK, port, 0.2)
        for filler in fillers:
            filler.close()
    assert reply == Reply(HandlerResult.FAILURE, f"dial tcp {LOOPBACK}:{port}: i/o timeout")


@contextlib.asynccontextmanager
async def grpc_server(
    with_health: bool = True, tls: tuple[bytes, bytes] | None = None
) -> AsyncIterator[tuple[int, Any]]:
    """``tls``: key and certificate."""
    server = grpc.aio.server()
    servicer = health.HealthServicer()
    if with_health:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if tls is None:
        port = server.add_insecure_port(f"{LOOPBACK}:0")
    else:
        credentials = grpc.ssl_server_credentials([tls])
        port = server.add_secure_port(f"{LOOPBACK}:0", credentials)
    await server.start()
    try:
        yield port, servicer
    finally:
        await server.stop(0)


async def test_grpc_health() -> None:
    answers = health_pb2.HealthCheckResponse
    async with grpc_server() as (port, servicer):
        await servicer.set("", answers.SERVING)
        await servicer.set("db", answers.NOT_SERVING)
        assert (await grpc_health.check(LOOPBACK, port, "", 2)).answer is HandlerResult.SUCCESS
        down = await grpc_health.check(LOOPBACK, port, "db", 2)
        assert down == Reply(
            HandlerResult.FAILURE, 'service unhealthy (responded with "NOT_SERVING")'
        )
        unknown = await grpc_health.check(LOOPBACK, port, "nobody", 2)
        assert unknown.answer is HandlerResult.FAILURE
        assert "code = NotFound" in unknown.output
        await servicer.set("db", answers.SERVING)
        assert (await grpc_health.check(LOOPBACK, port, "db", 2)).answer is HandlerResult.SUCCESS


def key_and_certificate(directory: Path) -> tuple[bytes, bytes]:
    """A key and a certificate that no client trusts."""
    pair = KeyPair.named(directory, "nobody")
    x509.make_self_signed(pair, Names("nobody"))
    return pair.key.read_bytes(), pair.certificate.read_bytes()


async def test_grpc_over_tls(tmp_path: Path) -> None:
    answers = health_pb2.HealthCheckResponse
    async with grpc_server(tls=key_and_certificate(tmp_path)) as (port, servicer):
        await servicer.set("", answers.SERVING)
        await servicer.set("db", answers.NOT_SERVING)
        healthy = await grpc_health.check(LOOPBACK, port, "", AMPLE, tls=True)
        assert healthy == Reply(HandlerResult.SUCCESS, "service healthy")
        down = await grpc_health.check(LOOPBACK, port, "db", AMPLE, tls=True)
        assert down == Reply(
            HandlerResult.FAILURE, 'service unhealthy (responded with "NOT_SERVING")'
        )
        in_the_clear = await grpc_health.check(LOOPBACK, port, "", TIMEOUT)
        assert in_the_clear.answer is HandlerResult.FAILURE
    async with grpc_server() as (port, servicer):
        await servicer.set("", answers.SERVING)
        over_tls = await grpc_health.check(LOOPBACK, port, "", TIMEOUT, tls=True)
        assert over_tls.answer is HandlerResult.FAILURE
        assert over_tls.output.startswith("timeout: failed to connect service")


@pytest.mark.parametrize(("tls", "scheme"), [(False, "http"), (True, "https")])
async def test_the_scheme_of_a_grpc_call(tmp_path: Path, tls: bool, scheme: str) -> None:
    schemes = []

    async def refuse(exchange: Exchange) -> None:
        schemes.append(exchange.headers[":scheme"])
        exchange.head(503)
        await exchange.write(b"", last=True)

    async with serving_http2(refuse, certificate(tmp_path) if tls else None) as server:
        reply = await grpc_health.check(LOOPBACK, server.port, "", AMPLE, tls=tls)
    assert reply.answer is HandlerResult.FAILURE
    assert schemes == [scheme]


async def test_grpc_over_tls_needs_http2_by_alpn(tmp_path: Path) -> None:
    """Like gRPC's own clients, the agent sends nothing to a server without HTTP/2."""
    heard: list[bytes] = []
    async with serving(answering(OK, heard), certificate(tmp_path)) as port:
        reply = await grpc_health.check(LOOPBACK, port, "", TIMEOUT, tls=True)
    assert reply.answer is HandlerResult.FAILURE
    assert heard == []


async def test_grpc_without_health_service() -> None:
    async with grpc_server(with_health=False) as (port, _):
        reply = await grpc_health.check(LOOPBACK, port, "", 2)
    assert reply.output.startswith("error: this server does not implement the grpc health protocol")


async def test_grpc_to_ports_that_refuse_or_never_answer() -> None:
    reply = await grpc_health.check(LOOPBACK, closed_port(), "", 0.3)
    assert reply.answer is HandlerResult.FAILURE
    assert "failed to connect service" in reply.output
    async with serving(silence) as port:
        reply = await grpc_health.check(LOOPBACK, port, "", 0.3)
    assert reply.answer is HandlerResult.FAILURE
    async with serving(answering(OK)) as port:
        assert (await grpc_health.check(LOOPBACK, port, "", 0.3)).answer is HandlerResult.FAILURE


@pytest.mark.parametrize("moment", range(12))
async def test_a_canceled_probe_leaves_nothing(resolver: Resolver, moment: int) -> None:
    """A probe may be canceled between any two turns of the loop."""
    complaints: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with serving(answering(b"HTTP/1.1 200 OK\r\n")) as port:
        asking = asyncio.create_task(probe(resolver, port))
        for _ in range(moment):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        del asking
        await asyncio.sleep(0.05)
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("kind", ["http", "http2", "tcp", "grpc"])
async def test_a_probe_that_cannot_be_sent_has_not_failed(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch, kind: str, number: int
) -> None:
    """Otherwise a node without file descriptors would restart all containers that have probes."""
    port = closed_port()
    assert (await _probe_of(resolver, kind, port)).answer is HandlerResult.FAILURE
    monkeypatch.setattr(actions, "new_socket", _fails(number))
    with pytest.raises(HandlerError, match="could not be probed: .*" + os.strerror(number)):
        await _probe_of(resolver, kind, port)


async def test_no_thread_for_a_name_lookup(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(HandlerError, match="no thread can be made"):
        await actions.connect(resolver, "localhost", 1, TIMEOUT)


async def _probe_of(resolver: Resolver, kind: str, port: int) -> Reply:
    if kind.startswith("http"):
        request = request_for({"port": port}, (), LOOPBACK, "probe")
        exchange = http2.exchange(Turns()) if kind == "http2" else None
        return await actions.probe(resolver, request, TIMEOUT, exchange)
    if kind == "tcp":
        return await actions.connect(resolver, LOOPBACK, port, TIMEOUT)
    return await grpc_health.check(LOOPBACK, port, "", TIMEOUT)


def _fails(number: int) -> Callable[[str], Any]:
    def fail(address: str) -> Any:
        raise OSError(number, os.strerror(number))

    return fail

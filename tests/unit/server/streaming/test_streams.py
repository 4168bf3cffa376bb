"""Options of streaming requests, and WebSockets translated to SPDY, with a simulated runtime."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from kubeletpy.base.wire import relay, spdy
from kubeletpy.remote.errors import CRIError, Internal, NotFound, ResourceExhausted
from kubeletpy.server.streaming.options import (
    TUNNEL,
    V5,
    BadStreamRequest,
    StreamRoute,
    Streams,
    offered_protocols,
    read_ports,
    read_streams,
    stream_route,
)
from tests.kit.server import SWITCH, Pki, Running, node


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("input=1&output=1&error=1", Streams(True, True, True, False)),
        ("output=1&error=1&tty=1", Streams(False, True, False, True)),
        ("output=1&output=0", Streams(False, True, False, False)),
        ("input=1", Streams(True, False, False, False)),
        ("error=1", Streams(False, False, True, False)),
        ("output=true", None),
        ("tty=1", None),
        ("", None),
    ],
)
def test_streams(query: str, expected: Streams | None) -> None:
    pairs = [tuple(part.split("=")) for part in query.split("&") if part]
    if expected is None:
        with pytest.raises(BadStreamRequest):
            read_streams(pairs)  # type: ignore[arg-type]
    else:
        assert read_streams(pairs) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ([("port", "80")], [80]),
        ([("port", "80,81"), ("port", "82")], [80, 81, 82]),
        ([], None),
        ([("port", "0")], None),
        ([("port", "65536")], None),
        ([("port", "65535")], [65535]),
        ([("port", "0" * 15 + "1")], [1]),
        ([("port", "0" * 16 + "1")], None),
        ([("port", "x")], None),
        ([("port", ""), ("port", "1")], None),
        ([("port", "٣")], None),
        ([("other", "80"), ("port", "81")], [81]),
        ([("port", "1")] * 64, [1] * 64),
        ([("port", "1")] * 65, None),
    ],
)
def test_ports(query: list[tuple[str, str]], expected: list[int] | None) -> None:
    assert read_ports(query, websocket=False) == []
    if expected is None:
        with pytest.raises(BadStreamRequest):
            read_ports(query, websocket=True)
    else:
        assert read_ports(query, websocket=True) == expected


def test_the_protocols_of_a_header() -> None:
    assert offered_protocols("v5.channel.k8s.io,, v4.channel.k8s.io ") == [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
    ]
    assert offered_protocols("") == []


@pytest.mark.parametrize(
    ("upgrade", "protocols", "expected"),
    [
        ("SPDY/3.1", [], StreamRoute.RAW),
        ("SPDY/3.1", [V5], StreamRoute.RAW),
        ("websocket", ["v4.channel.k8s.io"], StreamRoute.RAW),
        ("WebSocket", [V5, "v4.channel.k8s.io"], StreamRoute.TRANSLATED),
        ("websocket", [TUNNEL], StreamRoute.TUNNELLED),
    ],
)
def test_ways(upgrade: str, protocols: list[str], expected: StreamRoute) -> None:
    assert stream_route(upgrade, protocols) is expected


@asynccontextmanager
async def websocket(
    server: Running, path: str, protocol: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    connector = aiohttp.TCPConnector(ssl=server.pki.context(server.pki.client))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.ws_connect(server.url + path, protocols=protocol.split()) as socket,
    ):
        yield socket


async def played(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A process that echoes its stdin after its end, and exits with a status."""
    assert b"x-stream-protocol-version: v4.channel.k8s.io" in head.lower()
    assert b"authorization" not in head.lower()
    writer.write(SWITCH)
    decoder, stdin, ended = spdy.SpdyDecoder(), b"", False
    while not ended:
        for frame in decoder.feed(await reader.read(1 << 16)):
            if frame.kind == spdy.DATA and frame.stream == 3:
                stdin += frame.data
                ended = ended or frame.is_last
    writer.write(spdy.data(5, stdin) + spdy.data(7, b"to stderr"))
    writer.write(spdy.data(3, b"nothing that a client may get"))
    writer.write(spdy.data(1, b'{"status":"Success"}', last=True))
    for stream in (5, 7):
        writer.write(spdy.data(stream, b"", last=True))
    await writer.drain()
    await reader.read()


async def test_a_v5_websocket_can_close_stdin(tmp_path: Path, pki: Pki) -> None:
    blob = os.urandom(300_000)
    async with node(tmp_path, pki, played) as (server, runtime):
        path = "/exec/n/p/c?command=cat&command=-&input=1&output=1&error=1"
        async with websocket(server, path, V5) as socket:
            assert socket.protocol == V5
            for at in range(0, len(blob), 30_000):
                await socket.send_bytes(b"\0" + blob[at : at + 30_000])
            await socket.send_bytes(b"\xff\0")
            got: dict[int, bytes] = {}
            async for message in socket:
                got[message.data[0]] = got.get(message.data[0], b"") + message.data[1:]
            assert got == {1: blob, 2: b"to stderr", 3: b'{"status":"Success"}'}
        (requested,) = runtime.requested
        assert (requested.container_id, list(requested.cmd), requested.tty) == (
            "cid",
            ["cat", "-"],
            False,
        )


async def test_a_runtimes_url_without_a_scheme_is_http(tmp_path: Path, pki: Pki) -> None:
    async with node(tmp_path, pki, played) as (server, runtime):
        runtime.url = str(runtime.url).removeprefix("http:")
        path = "/exec/n/p/c?command=cat&input=1&output=1&error=1"
        async with websocket(server, path, V5) as socket:
            await socket.send_bytes(b"\0in")
            await socket.send_bytes(b"\xff\0")
            assert {m.data[0]: m.data[1:] async for m in socket}[1] == b"in"


@pytest.mark.parametrize(
    ("path", "protocol", "first"),
    [
        ("/exec/n/p/c?command=cat&input=1&output=1", V5, b"\0x"),
        ("/portForward/n/p", TUNNEL, b"x"),
        ("/exec/n/p/c?command=cat&input=1&output=1", "v4.channel.k8s.io", b"\0x"),
    ],
)
async def test_idle_streams_are_closed(
    tmp_path: Path, pki: Pki, path: str, protocol: str, first: bytes
) -> None:
    ended = asyncio.Event()

    async def wait(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = re.search(rb"Sec-WebSocket-Key: (\S+)", head, re.IGNORECASE)
        if key is None:
            writer.write(SWITCH)
        else:
            digest = hashlib.sha1(key[1] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            writer.write(b"HTTP/1.1 101 Yes\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
            writer.write(b"Sec-WebSocket-Accept: %s\r\n\r\n" % base64.b64encode(digest))
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass
        ended.set()

    async with node(tmp_path, pki, wait, idle_timeout=1) as (server, _):
        async with websocket(server, path, protocol) as socket:
            await socket.send_bytes(first)
            assert [message async for message in socket] == []
        async with asyncio.timeout(5):
            await ended.wait()


async def test_a_client_that_vanishes_ends_the_translation(tmp_path: Path, pki: Pki) -> None:
    removed = asyncio.Event()

    async def wait(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH)
        while await reader.read(1000):
            pass
        removed.set()

    async with node(tmp_path, pki, wait) as (server, _):
        before = len(asyncio.all_tasks())
        async with websocket(server, "/exec/n/p/c?command=x&output=1&input=1", V5) as socket:
            await socket.send_bytes(b"\0x")
            assert socket._response.connection is not None
            transport = socket._response.connection.transport
            assert transport is not None
            transport.abort()
        async with asyncio.timeout(5):
            await removed.wait()
            while len(asyncio.all_tasks()) > before:  # noqa: ASYNC110 - tasks have no event
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("path", "protocol"),
    [("/exec/n/p/c?command=x&output=1&input=1", V5), ("/portForward/n/p", TUNNEL)],
)
async def test_a_runtime_may_answer_a_websocket_that_has_gone(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch, path: str, protocol: str
) -> None:
    """A runtime whose client disconnects too soon may never process the exit of its container."""
    monkeypatch.setattr(relay, "LINGER_S", 0.5)
    loop, took = asyncio.get_running_loop(), asyncio.Future[float]()
    left = 0.0

    async def wait(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH)
        while await reader.read(1000):
            pass
        took.set_result(loop.time() - left)

    async with node(tmp_path, pki, wait) as (server, _), asyncio.timeout(10):
        async with websocket(server, path, protocol) as socket:
            await socket.send_bytes(b"\0x")
            left = loop.time()
        assert await took >= 0.4


@pytest.mark.parametrize("message", [b"\x01x", b"\x09x", b"\xff", b"\xff\x07", b"\x03{}"])
async def test_strange_messages_do_no_harm(tmp_path: Path, pki: Pki, message: bytes) -> None:
    async with node(tmp_path, pki, played) as (server, _):
        path = "/attach/n/p/u/c?input=1&output=1&error=1"
        async with websocket(server, path, V5) as socket:
            await socket.send_bytes(message)
            await socket.send_str("text")
            await socket.send_str("\0o")
            await socket.send_bytes(b"\0k")
            await socket.send_bytes(b"\xff\0")
            first = await socket.receive_bytes()
            assert first == b"\x01ok"


async def test_spdy_inside_a_websocket(tmp_path: Path, pki: Pki) -> None:
    async def echo(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"x-stream-protocol-version: portforward.k8s.io" in head.lower()
        writer.write(SWITCH + b"early")
        while data := await reader.read(1000):
            writer.write(data)

    async with (
        node(tmp_path, pki, echo) as (server, runtime),
        websocket(server, "/portForward/n/p", TUNNEL) as socket,
    ):
        assert await socket.receive_bytes() == b"early"
        await socket.send_bytes(b"ping")
        assert await socket.receive_bytes() == b"ping"
        assert runtime.requested[0].pod_sandbox_id == "sid"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("Exec", "x"), 404),
        (ResourceExhausted("Exec", "x"), 429),
        (Internal("Exec", "x"), 500),
    ],
)
async def test_errors_of_the_runtime_are_returned(
    tmp_path: Path, pki: Pki, error: CRIError, status: int
) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
    async with node(tmp_path, pki) as (server, runtime):
        runtime.error = error
        for path in (
            "/exec/n/p/c?command=x&output=1",
            "/attach/n/p/c?output=1",
            "/portForward/n/p",
        ):
            for method in ("GET", "POST"):
                answer = await server.request(method, path, client=pki.client, headers=upgrade)
                assert answer == (status, "x\n")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/exec/n/p/c?command=x", 400),
        ("/exec/n/other/c?command=x&output=1", 404),
        ("/exec/n/p/wrong-uid/c?command=x&output=1", 404),
        ("/exec/n/p/other?command=x&output=1", 500),
        ("/exec/n/p/c?command=x&output=1", 400),  # no upgrade
        ("/attach/n/p/c?output=1", 400),
        ("/portForward/n/p", 400),
        ("/portForward/n/x", 404),
    ],
)
async def test_bad_requests_never_reach_the_runtime(
    tmp_path: Path, pki: Pki, path: str, status: int
) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        assert (await server.request("POST", path, client=pki.client))[0] == status
        assert runtime.requested == []


async def test_run(tmp_path: Path, pki: Pki) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        answer = await server.request("POST", "/run/n/p/c?cmd=echo+a%20b", client=pki.client)
        assert answer == (200, "outerr")
        assert runtime.requested == [("cid", ["echo", "a", "b"], 0)]
        assert (await server.request("GET", "/run/n/p/c?cmd=x", client=pki.client))[0] == 405

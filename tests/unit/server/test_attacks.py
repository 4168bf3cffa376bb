"""Malicious clients: each costs no more than its share and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletpy.base.wire import spdy
from kubeletpy.server.health import HealthServer
from kubeletpy.server.streaming.options import TUNNEL, V5
from tests.kit.costs import open_descriptors
from tests.kit.server import (
    ALLOW,
    EXEC,
    POD,
    SWITCH,
    Connection,
    Pki,
    Reviewer,
    connect,
    head,
    make_view,
    node,
    serving,
)


def frame(opcode: int, content: bytes, *, fin: bool = True, claims: int | None = None) -> bytes:
    """A WebSocket frame of a client, masked with zeros; ``claims`` another length."""
    size = len(content) if claims is None else claims
    return struct.pack(">BBQI", fin << 7 | opcode, 0xFF, size, 0) + content


async def ended(reader: asyncio.StreamReader, seconds: float = 10) -> bytes:
    """All bytes received until the server closes."""
    got = b""
    try:
        async with asyncio.timeout(seconds):
            while piece := await reader.read(1 << 16):
                got += piece
    except ConnectionError:
        pass
    return got


async def flood(writer: asyncio.StreamWriter, content: bytes, limit: int) -> int:
    """Send until the server reads nothing for half a second or closes; the number of bytes sent."""
    sent = 0
    try:
        while sent < limit:
            writer.write(content)
            sent += len(content)
            # drain() of TLS alone gives no turn, so that the loss of the connection stays unknown
            await asyncio.sleep(0)
            async with asyncio.timeout(0.5):
                await writer.drain()
    except (TimeoutError, ConnectionError):
        pass
    return sent


# -- before a request is there -------------------------------------------------------------------


@pytest.mark.parametrize(
    "stated", [b"", b"GET /pods", b"GET /pods HTTP/1.1\r\nHost: x\r\nX: "], ids=str
)
async def test_a_head_that_never_ends(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: bytes
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.http_server.IDLE_S", 0.4)
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        reader, writer = await connect(server, known=False)
        writer.write(stated)
        closed = asyncio.create_task(ended(reader))
        async with asyncio.timeout(5):
            while not closed.done():
                if stated:
                    writer.write(b"x")
                await asyncio.wait({closed}, timeout=0.05)
        assert await closed == b""


@pytest.mark.parametrize(
    "stated",
    [
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"x" * 100_000,
        b"\x80\x03\x00\x01" * 10_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100_000),
    ],
    ids=["line", "field", "fields", "name", "spdy", "http2"],
)
async def test_oversized_request_heads(
    pki: Pki, tmp_path: Path, stated: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        reader, writer = await connect(server, known=False)
        await flood(writer, stated, len(stated))
        answer = await ended(reader)
        assert answer == b"" or answer.split()[1] in (b"400", b"401", b"431"), answer[:200]
        assert b"Traceback" not in answer
        assert (await server.request("GET", "/healthz", client=pki.client))[0] == 200
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def test_a_long_command_fits_into_a_request(pki: Pki, tmp_path: Path) -> None:
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        path = f"/healthz?command={'x' * 60_000}"
        assert (await server.request("GET", path, client=pki.client))[0] == 200


async def test_many_requests_at_once_from_one_connection(pki: Pki, tmp_path: Path) -> None:
    api = Reviewer()
    async with serving(make_view(tmp_path), api, pki) as server:
        _, writer = await connect(server, known=False)
        one = b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n"
        sent = await flood(writer, one * 1000, 200 << 20)
        # it reads no answer, so the server soon stops reading from it
        assert sent < 100 << 20
        writer.transport.abort()


async def test_what_follows_an_upgrade_waits_outside(pki: Pki, tmp_path: Path) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        runtime.go_on.clear()
        for path, protocol in ((EXEC, ""), (EXEC, V5), ("/portForward/n/p", TUNNEL)):
            runtime.was_requested.clear()
            _, writer = await connect(server)
            writer.write(head(path, protocol))
            async with asyncio.timeout(5):
                await runtime.was_requested.wait()
            assert await flood(writer, bytes(1 << 16), 64 << 20) < 16 << 20
            writer.transport.abort()
        runtime.go_on.set()


# -- slow readers and writers --------------------------------------------------------------------


async def test_a_client_that_does_not_read_its_answer_loses_it(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.ANSWER_S", 2.0)
    monkeypatch.setattr("kubeletpy.server.app.MAX_ANSWERS", 2)
    pods = [
        {**POD, "metadata": {"namespace": "n", "uid": f"u{i}", "name": f"{i}" + "y" * 100_000}}
        for i in range(100)
    ]
    async with serving(make_view(tmp_path, *pods), None, pki, ALLOW) as server:
        lazy, tasks = [], len(asyncio.all_tasks())
        for _ in range(2):
            sock = socket.create_connection(("127.0.0.1", server.port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            context = pki.context(pki.client)
            reader, writer = await asyncio.open_connection(
                sock=sock, ssl=context, server_hostname="127.0.0.1", limit=1024
            )
            writer.write(b"GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.read(100)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            lazy.append(writer)
        assert (await server.request("GET", "/pods", client=pki.client))[0] == 429
        async with asyncio.timeout(5):
            while (await server.request("GET", "/healthz", client=pki.client))[0] == 429:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        # the server has closed their connections, though they have not noticed yet
        await settled(lambda: len(asyncio.all_tasks()), tasks)
        for writer in lazy:
            writer.transport.abort()


async def test_a_body_that_never_ends(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.app.ANSWER_S", 0.3)
    monkeypatch.setattr("kubeletpy.base.wire.http_server.LINGER_S", 0.3)
    put = b"PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\n"
    async with serving(make_view(tmp_path), None, pki, ALLOW) as server:
        reader, writer = await connect(server)
        writer.write(put + b"Content-Length: 5\r\n\r\n4")
        await ended(reader)
        reader, writer = await connect(server)
        writer.write(put + b"Transfer-Encoding: chunked\r\n\r\n")
        async with asyncio.timeout(5):
            await flood(writer, b"10000\r\n" + bytes(0x10000) + b"\r\n", 1 << 40)
            await ended(reader)


async def test_a_process_that_floods_a_client_that_does_not_read(pki: Pki, tmp_path: Path) -> None:
    sent = 0
    stopped = asyncio.Event()

    async def talk(
        _head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        nonlocal sent
        writer.write(SWITCH)
        writer.transport.set_write_buffer_limits(high=1 << 16)
        sent += await flood(writer, spdy.data(5, bytes(1 << 16)), 256 << 20)
        stopped.set()

    async with node(tmp_path, pki, talk) as (server, _):
        for protocol in ("", V5):
            sent = 0
            stopped.clear()
            reader, writer = await connect(server)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(head(EXEC, protocol))
            async with asyncio.timeout(20):
                await stopped.wait()
            assert sent < 32 << 20
            writer.transport.abort()
            del reader


# -- WebSocket frames ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frames",
    [
        frame(2, b"\0x", claims=1 << 62),
        frame(2, b"\0x", claims=1 << 30),
        frame(2, bytes(1 << 20), fin=False) + frame(0, bytes(1 << 20), fin=False) * 5,
        frame(2 | 0x40, b"compressed?"),
        frame(2 | 0x10, b"reserved"),
        frame(9, bytes(126)),
        frame(9, b"", fin=False),
        frame(3, b""),
        frame(0, b"goes on with nothing"),
        frame(8, b"\x00"),
        b"\x82\x01x",
    ],
    ids=[
        *("length", "gigabyte", "fragments", "deflate", "reserved", "long-ping", "split-ping"),
        *("opcode", "continuation", "close", "unmasked"),
    ],
)
@pytest.mark.parametrize(("path", "protocol"), [(EXEC, V5), ("/portForward/n/p", TUNNEL)])
async def test_invalid_frames(
    pki: Pki, tmp_path: Path, frames: bytes, path: str, protocol: str
) -> None:
    async with node(tmp_path, pki) as (server, _):
        tasks = len(asyncio.all_tasks())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reader, writer = await connect(server)
        writer.write(head(path, protocol))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        sent = await flood(writer, frames, len(frames))
        writer.write_eof() if writer.can_write_eof() else None
        if frames[:2] != b"\x82\x01":  # a client that does not mask is only impolite
            await ended(reader)
        assert sent <= len(frames)
        writer.transport.abort()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 64 << 10, "kilobytes"
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - tasks have no event
                await asyncio.sleep(0.01)


async def test_pings_that_nobody_reads_the_answers_of(pki: Pki, tmp_path: Path) -> None:
    async with node(tmp_path, pki) as (server, _):
        reader, writer = await connect(server)
        writer.write(head(EXEC, V5))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert await flood(writer, frame(9, bytes(125)) * 500, 128 << 20) < 32 << 20
        writer.transport.abort()


# -- the runtime's side --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stated",
    [
        struct.pack(">HHI", 0x8003, spdy.SYN_REPLY, spdy.MAX_FRAME),
        b"\x80\x02\x00\x01\x00\x00\x00\x00",
    ],
    ids=["control-bomb", "version"],
)
async def test_a_runtime_that_speaks_nonsense(
    pki: Pki, tmp_path: Path, stated: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.server.streaming.link.CLOSE_S", 0.2)

    async def speak(
        _head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(SWITCH + stated + bytes(1 << 20))
        await reader.read()

    async with node(tmp_path, pki, speak) as (server, _):
        reader, writer = await connect(server)
        writer.write(head(EXEC, V5))
        assert len(await ended(reader)) < 2 << 20
        writer.transport.abort()


# -- hundreds of streams, and clients that vanish --------------------------------------------------


def reset(writer: asyncio.StreamWriter) -> None:
    """Abort the connection: the peer gets a RST instead of an end."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def settled(count: Callable[[], int], most: int) -> None:
    async with asyncio.timeout(20):
        while count() > most:
            gc.collect()
            await asyncio.sleep(0.05)


async def test_hundreds_of_streams_that_vanish_leave_nothing(pki: Pki, tmp_path: Path) -> None:
    kinds = [
        (EXEC, "", b"101"),
        (EXEC, V5, b"101"),
        ("/portForward/n/p", TUNNEL, b"101"),
        ("/attach/n/p/c?output=1", "", b"101"),
        ("/containerLogs/n/p/c?follow=true", None, b"200"),
    ]
    async with node(tmp_path, pki) as (server, _):

        async def open_one(number: int) -> Connection:
            path, protocol, expected = kinds[number % len(kinds)]
            reader, writer = await connect(server)
            plain = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
            writer.write(plain if protocol is None else head(path, protocol))
            assert (await reader.readuntil(b"\r\n")).split()[1] == expected
            return reader, writer

        async def storm(count: int) -> None:
            opened = [await open_one(number) for number in range(count)]
            assert (await server.request("GET", "/healthz", client=pki.client)) == (200, "ok")
            for _, writer in opened:
                reset(writer)

        await storm(5)  # creates everything that is made once, such as the threads that read files
        await asyncio.sleep(0.2)
        tasks, fds = len(asyncio.all_tasks()), open_descriptors()
        for _ in range(2):
            await storm(150)
            await settled(lambda: len(asyncio.all_tasks()), tasks)
            await settled(open_descriptors, fds + 8)


@pytest.mark.parametrize(
    ("path", "protocol"),
    [
        *((EXEC, protocol) for protocol in ("", "v4.channel.k8s.io", V5)),
        ("/attach/n/p/c?output=1", ""),
        ("/portForward/n/p", ""),
        ("/portForward/n/p", TUNNEL),
    ],
)
@pytest.mark.parametrize(
    "stated",
    [
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 1011 No\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 No HTTP\r\n" + b"X: y\r\n" * 20_000,
    ],
    ids=["refused", "continue", "no-code", "no-end"],
)
async def test_a_runtime_that_refuses_and_keeps_its_end_open(
    pki: Pki, tmp_path: Path, path: str, protocol: str, stated: bytes
) -> None:
    async def refuse(
        _head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(stated)
        await reader.read()

    async with node(tmp_path, pki, refuse) as (server, _):

        async def request_once() -> None:
            reader, writer = await connect(server)
            writer.write(head(path, protocol))
            assert (await reader.readuntil(b"\r\n\r\n")).split()[1] in (b"403", b"502")
            writer.transport.abort()

        await request_once()
        fds = open_descriptors()
        for _ in range(20):
            await request_once()
        await settled(open_descriptors, fds + 8)


@pytest.mark.parametrize("protocol", ["", V5])
async def test_clients_that_vanish_before_the_runtime_answers(
    pki: Pki, tmp_path: Path, protocol: str
) -> None:
    requested = asyncio.Semaphore(0)

    async def silent(
        _head: bytes, reader: asyncio.StreamReader, _writer: asyncio.StreamWriter
    ) -> None:
        requested.release()
        await reader.read()

    async with node(tmp_path, pki, silent) as (server, _):

        async def vanish() -> None:
            _, writer = await connect(server)
            writer.write(head(EXEC, protocol))
            await requested.acquire()
            reset(writer)

        await vanish()
        fds = open_descriptors()
        for _ in range(20):
            await vanish()
        await settled(open_descriptors, fds + 8)


async def test_silent_connections_keep_nobody_from_the_health_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubeletpy.server.health.MAX_CONNECTIONS", 4)
    server = HealthServer("127.0.0.1", 0, checks={}, render_metrics=lambda: (b"", "text/plain"))
    await server.start()
    await server.serve()
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await ended(reader)).endswith(b"ok")  # closed by the server: it keeps no connection
    ends = [asyncio.ensure_future(ended(each)) for each, _ in held]
    done, silent = await asyncio.wait(ends, timeout=1)
    assert len(silent) <= 4 // 2
    assert len(done) >= 6
    await server.close()
    for each in ends:
        assert await each == b""
    for _, each_writer in held:
        each_writer.close()

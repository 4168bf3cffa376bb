"""Two joined streams: no data is lost, nothing is left behind, backpressure reaches the peer."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web

from kubeletpy.base.wire import relay, upgrade
from kubeletpy.base.wire.http_server import HttpServer, SentResponse, is_upgrade
from kubeletpy.base.wire.listener import ConnectionLimiter
from kubeletpy.base.wire.relay import SLICE_WORK, SLICES_A_TURN, StreamWork
from tests.kit.costs import events_per_turn

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SWITCH = (
    b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Secret: no\r\n\r\n"
)


class Chain:
    """client -> aiohttp, hijacked -> a simulated streaming server of a runtime (``peer``)."""

    def __init__(self, peer: Peer, *, idle: float = 0) -> None:
        self._peer, self._idle = peer, idle

    async def __aenter__(self) -> Chain:
        self.backend = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.backend_port = self.backend.sockets[0].getsockname()[1]
        app = web.Application()
        app.router.add_route("*", "/x", self._handle)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.port = self.runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()
        self.backend.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await self._peer(reader, writer)
        writer.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        assert is_upgrade(request)
        answer = await upgrade.request_upgrade(
            "127.0.0.1", self.backend_port, method="POST", target="/", headers=[], timeout=5
        )
        if answer.status != 101:
            return web.Response(status=answer.status, body=answer.body)
        return await relay.join(request, answer, idle_timeout=self._idle)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(
            b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        )
        return reader, writer, await reader.readuntil(b"\r\n\r\n")

    async def until_no_connection(self) -> None:
        server = self.runner.server
        assert server is not None
        async with asyncio.timeout(60):
            while server.connections:  # noqa: ASYNC110 - aiohttp has no event for this
                await asyncio.sleep(0.01)


async def test_megabytes_go_both_ways_and_the_first_bytes_with_the_head() -> None:
    blob = os.urandom(3 << 20)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH + b"first")
        left = len(blob)
        while left:
            data = await reader.read(1 << 16)
            left -= len(data)
            writer.write(data)
            await writer.drain()

    async with Chain(echo) as chain:
        reader, writer, head = await chain.connect()
        assert head.startswith(b"HTTP/1.1 101 Switching\r\n")
        assert b"Secret" not in head
        assert await reader.readexactly(5) == b"first"
        writer.write(blob)
        back = await reader.readexactly(len(blob))
        assert hashlib.sha256(back).digest() == hashlib.sha256(blob).digest()
        assert await reader.read() == b""
        writer.close()
        await chain.until_no_connection()


async def test_a_slow_reader_is_felt_by_the_sender() -> None:
    sent, stalled = 0, asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(SWITCH)
        while True:
            writer.write(bytes(1 << 16))
            try:
                async with asyncio.timeout(1):
                    await writer.drain()
            except TimeoutError:
                stalled.set()
                return
            sent += 1 << 16

    async with Chain(flood) as chain:
        reader, writer = await asyncio.open_connection("127.0.0.1", chain.port, limit=1024)
        writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
        async with asyncio.timeout(20):
            await stalled.wait()
        assert sent < 64 << 20
        writer.transport.abort()
        await chain.until_no_connection()
        del reader


async def test_a_client_that_vanishes_is_felt_by_the_runtime() -> None:
    removed = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH)
        assert await reader.read() == b""
        removed.set()

    async with Chain(wait) as chain:
        _, writer, _ = await chain.connect()
        writer.transport.abort()
        async with asyncio.timeout(60):
            await removed.wait()
        await chain.until_no_connection()


async def test_a_runtime_may_answer_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime whose client disconnects too soon may never process the exit of its container."""
    monkeypatch.setattr(relay, "LINGER_S", 0.5)
    loop, took = asyncio.get_running_loop(), asyncio.Future[float]()

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH)
        assert await reader.readexactly(8) == b"a stream"
        requested = loop.time()
        writer.write(b"a reply")
        assert await reader.read() == b""
        took.set_result(loop.time() - requested)

    async with Chain(answers) as chain, asyncio.timeout(60):
        _, writer, _ = await chain.connect()
        writer.write(b"a stream")
        await writer.drain()
        writer.close()
        assert await took >= 0.4
        await chain.until_no_connection()


async def test_idle_relays_are_closed() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH)
        await reader.read()

    async with Chain(wait, idle=0.05) as chain:
        reader, writer, _ = await chain.connect()
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        await chain.until_no_connection()


async def test_idleness_counts_from_the_last_byte() -> None:
    written, now = 0.0, asyncio.get_running_loop().time

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(SWITCH)
        await asyncio.sleep(0.1)
        written = now()
        writer.write(b"x")
        await reader.read()

    async with Chain(wait, idle=3) as chain:
        reader, writer, _ = await chain.connect()
        assert await reader.readexactly(1) == b"x"
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert now() - written > 2.95, "from the connection's begin it would be less"
        writer.close()


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", 404, b"gone"),
        (
            b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n",
            500,
            b"bad",
        ),
    ],
)
async def test_a_refusal_comes_through(answer: bytes, status: int, body: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with Chain(refuse) as chain:
        reader, writer, head = await chain.connect()
        assert int(head.split()[1]) == status
        assert await reader.readexactly(len(body)) == body
        writer.close()


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 101 x\r\n" + b"a: b\r\n" * 20000]
)
async def test_nonsense_is_an_error(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(upgrade.UpgradeFailed):
        await upgrade.request_upgrade(
            "127.0.0.1", port, method="GET", target="/", headers=[], timeout=5
        )
    server.close()


async def test_a_head_can_not_be_smuggled_in() -> None:
    for headers, target in (([("A", "b\r\nC: d")], "/"), ([], "/ HTTP/1.1")):
        with pytest.raises(upgrade.UpgradeFailed):
            await upgrade.request_upgrade(
                "127.0.0.1", 1, method="GET", target=target, headers=headers, timeout=1
            )


async def test_many_relays_share_the_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """One relay reads little at once, but a thousand relays together delayed everything else."""
    count, size = 20, 2 << 20
    read = relay.RelayEnd.data_received

    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCH)
        for _ in range(size >> 16):
            writer.write(bytes(1 << 16))
            await writer.drain()
        writer.write_eof()
        await reader.read()

    async def takes(chain: Chain) -> int:
        reader, writer, _ = await chain.connect()
        got = 0
        while piece := await reader.read(1 << 18):
            got += len(piece)
        writer.close()
        return got

    with events_per_turn() as counted:

        def counting(end: relay.RelayEnd, data: bytes) -> None:
            for _ in range(1 + (len(data) >> 12)):
                counted.count()
            read(end, data)

        monkeypatch.setattr(relay.RelayEnd, "data_received", counting)
        async with Chain(floods) as chain, asyncio.timeout(60):
            assert await asyncio.gather(*(takes(chain) for _ in range(count))) == [size] * count
    assert counted.total > count * (size >> 12) * 3 // 4
    turns = sorted(counted.turns)
    most = relay.SLICE_WORK * relay.SLICES_A_TURN
    # a relay's first read, and one after its slice, need no permission
    assert turns[len(turns) * 3 // 4] <= 2 * most


# A client's hijacked connection as streams: it ends once, and aiohttp drops it.


class TlsTransport(asyncio.Transport):
    """A TLS connection of CPython 3.11.2, whose abort() raises after a second close()."""

    def __init__(self) -> None:
        super().__init__()
        self.closes, self.lost = 0, False
        self.protocol: Any = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closes > 0

    def close(self) -> None:
        self.closes += 1
        self._lose()

    def abort(self) -> None:
        if self.closes > 1:
            raise AttributeError("'NoneType' object has no attribute '_abort'")
        self._lose()

    def peer_leaves(self) -> None:
        """The client ends the connection."""
        self.close()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            self.protocol.connection_lost(None)


@pytest.mark.parametrize("first", ["client", "agent"])
async def test_aiohttp_forgets_a_connection_whoever_ends_it(first: str) -> None:
    forgotten = asyncio.Event()
    client = TlsTransport()
    handler = SimpleNamespace(connection_lost=lambda _: forgotten.set(), set_parser=lambda _: None)
    request = cast(web.Request, SimpleNamespace(transport=client, protocol=handler))
    async with relay.streams(request, b"HTTP/1.1 101 \r\n\r\n", 1 << 16):
        if first == "client":
            client.peer_leaves()
    async with asyncio.timeout(60):
        await forgotten.wait()


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_what_a_client_sends_with_its_request_is_read(pause: float) -> None:
    """Before the connection is hijacked, aiohttp has read it."""
    got = asyncio.Future[bytes]()

    async def handle(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(pause)
        async with relay.streams(request, b"HTTP/1.1 101 \r\n\r\n", 1 << 16) as (reader, _):
            got.set_result(await reader.readexactly(12))
        return SentResponse()

    app = web.Application()
    app.router.add_get("/", handle)
    server = HttpServer(app, ConnectionLimiter(10))
    sock = socket.create_server(("127.0.0.1", 0))
    await server.start(sock)
    _, writer = await asyncio.open_connection(*sock.getsockname())
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    writer.write(head + b"early,")
    await asyncio.sleep(0.01)
    writer.write(b"later.")
    async with asyncio.timeout(60):
        assert await got == b"early,later."
    writer.close()
    await server.close()


# How much work all streams of an event loop may do in a turn, and which is next.

A_TURN = SLICE_WORK * SLICES_A_TURN


async def test_a_stream_that_is_alone_does_not_wait_while_slices_are_left() -> None:
    work = StreamWork()
    assert not any(work.exceeds(0) for _ in range(A_TURN + SLICE_WORK - 1))
    assert work.exceeds(0)
    await work.next_slice()
    assert not any(work.exceeds(0) for _ in range(A_TURN - 1))


async def test_large_frames_are_more_work() -> None:
    work = StreamWork()
    assert not work.exceeds(A_TURN << 12)
    assert work.exceeds(SLICE_WORK << 12)


async def test_a_thousand_streams_together_do_what_fits_into_a_turn() -> None:
    async def stream() -> None:
        work = StreamWork()
        for _ in range(10 * SLICE_WORK):
            counted.count()
            await work.did(0)

    with events_per_turn() as counted:
        await asyncio.gather(*(stream() for _ in range(100)))
    assert counted.total == 1000 * SLICE_WORK
    # the first turn has the first slice of each stream: none has had to wait yet
    later = counted.turns[1:]
    assert max(later) <= A_TURN
    assert sorted(later)[len(later) // 2] == A_TURN, "and no turn is wasted"


async def test_streams_get_slices_in_turn() -> None:
    done = [0] * 20

    async def stream(number: int) -> None:
        work = StreamWork()
        while True:
            done[number] += 1
            await work.did(0)

    tasks = [asyncio.create_task(stream(number)) for number in range(20)]
    for _ in range(200):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert min(done) > 10 * SLICE_WORK
    assert max(done) - min(done) <= A_TURN + SLICE_WORK


async def test_a_stream_that_ends_while_it_waits_takes_nothing_from_others() -> None:
    def used_up() -> StreamWork:
        work = StreamWork()
        while not work.exceeds(0):
            pass
        return work

    waiting = [asyncio.create_task(used_up().next_slice()) for _ in range(10 * SLICES_A_TURN)]
    last = asyncio.create_task(used_up().next_slice())
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    async with asyncio.timeout(60):
        await last


async def test_a_callback_is_called_in_a_later_turn() -> None:
    work, called = StreamWork(), asyncio.Event()
    while not work.exceeds(0):
        pass
    work.resume_later(called.set)
    assert not called.is_set()
    async with asyncio.timeout(60):
        await called.wait()

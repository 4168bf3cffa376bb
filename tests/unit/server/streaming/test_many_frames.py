"""Floods of frames from clients and runtimes: how many are handled in a turn of the loop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.wire import relay, spdy, websocket
from kubeletpy.base.wire.relay import SLICE_WORK, SLICES_A_TURN
from kubeletpy.server.streaming.options import TUNNEL, V5
from tests.kit.costs import PerTurn, events_per_turn
from tests.kit.server import SWITCH, Pki, Running, Serve, connect, head, node
from tests.unit.base.wire.test_websocket import frame

MOST = SLICE_WORK * SLICES_A_TURN + SLICE_WORK
"""Most frames in a turn: all slices, and the rest of the previous one."""
COUNT = 20_000
EXEC = "/exec/n/p/c?command=cat&input=1&output=1"


@contextlib.asynccontextmanager
async def connected(
    server: Running, path: str, protocol: str, **headers: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]]:
    """A client that writes raw frames, and the head of the response."""
    reader, writer = await connect(server)
    writer.write(head(path, protocol, **headers))
    try:
        yield reader, writer, await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()


@contextlib.contextmanager
def frames_per_turn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Counts the frames that streams report."""
    report = relay.StreamWork.exceeds

    with events_per_turn() as counted:

        def counting(work: relay.StreamWork, size: int) -> bool:
            counted.count()
            return report(work, size)

        monkeypatch.setattr(relay.StreamWork, "exceeds", counting)
        yield counted


def takes_all(done: asyncio.Event, received: list[int]) -> Serve:
    """A runtime that counts the bytes it receives."""

    async def serve(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(SWITCH)
        while piece := await reader.read(1 << 16):
            received.append(len(piece))
        done.set()

    return serve


FLOODS: dict[str, Callable[[int], bytes]] = {
    "tiny messages": lambda count: frame(websocket.BINARY, b"\0x") * count,
    "empty messages": lambda count: frame(websocket.BINARY) * count,
    "texts": lambda count: frame(websocket.TEXT, b"x") * count,
    "pings": lambda count: frame(websocket.PING, b"x") * count,
    "pongs": lambda count: frame(websocket.PONG) * count,
    "fragments": lambda count: (
        frame(websocket.BINARY, b"\0", last=False)
        + frame(websocket.FRAGMENT, last=False) * (count - 1)
    ),
}


@pytest.mark.parametrize("way", [(EXEC, V5), ("/portForward/n/p", TUNNEL)])
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_of_frames_leaves_turns_to_others(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch, name: str, way: tuple[str, str]
) -> None:
    """200,000 frames of 2 bytes delayed health checks by 295 ms."""
    removed, received = asyncio.Event(), list[int]()
    async with (
        node(tmp_path, pki, takes_all(removed, received)) as (server, _),
        connected(server, *way) as (reader, writer, head),
    ):
        assert head.startswith(b"HTTP/1.1 101 ")
        counted: PerTurn
        with frames_per_turn(monkeypatch) as counted:
            drained = asyncio.create_task(_drain(reader))
            for _ in range(10):
                writer.write(FLOODS[name](COUNT // 10) if name != "fragments" else b"")
                await writer.drain()
            if name == "fragments":
                writer.write(FLOODS[name](COUNT))
            writer.write(frame(websocket.CLOSE, b"\x03\xe8"))
            await writer.drain()
            async with asyncio.timeout(60):
                await removed.wait()
                await drained
            assert counted.total > COUNT
            assert counted.most <= MOST


async def _drain(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while await reader.read(1 << 16):
            pass


async def test_a_flood_of_tiny_frames_of_the_runtime_leaves_turns_to_others(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container writes one byte at a time; and a runtime pings."""

    async def writes(
        head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(SWITCH)
        for _ in range(COUNT // 100):
            writer.write(spdy.data(5, b"x") * 50 + spdy.ping_answer(1) * 50)
            await writer.drain()
        for stream in (1, 3, 5):
            writer.write(spdy.data(stream, b"", last=True))
        await writer.drain()
        await reader.read()

    async with node(tmp_path, pki, writes) as (server, _):
        with frames_per_turn(monkeypatch) as counted:
            async with connected(server, EXEC, V5) as (reader, writer, _head), asyncio.timeout(60):
                got = await reader.readuntil(b"\x88\x02\x03\xe8")
                writer.write(frame(websocket.CLOSE, b"\x03\xe8"))
                await _drain(reader)
    assert got.count(b"\x82\x02\x01x") == COUNT // 2
    assert counted.total > COUNT
    assert counted.most <= MOST


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(websocket.BINARY, b"\0x", mask=None), 1002),
        (frame(websocket.BINARY, b"\0x", reserved=0x40), 1002),
        (frame(websocket.PING, b"x", last=False), 1002),
        (frame(websocket.TEXT, b"\xff"), 1007),
        (frame(websocket.CLOSE, b"\x03\xed"), 1002),
        (b"\x82\xff" + (1 << 30).to_bytes(8, "big"), 1009),
        (frame(websocket.CLOSE, b"\x0f\xa0why"), 4000),
        (frame(websocket.CLOSE), 1000),
    ],
)
@pytest.mark.parametrize("way", [(EXEC, V5), ("/portForward/n/p", TUNNEL)])
async def test_a_client_that_breaks_the_protocol_is_closed_with_its_code(
    tmp_path: Path, pki: Pki, way: tuple[str, str], data: bytes, code: int
) -> None:
    """A frame without a mask was accepted: RFC 6455, 5.1 has the server close the connection."""
    removed, received = asyncio.Event(), list[int]()
    async with (
        node(tmp_path, pki, takes_all(removed, received)) as (server, _),
        connected(server, *way) as (reader, writer, _head),
        asyncio.timeout(20),
    ):
        writer.write(data + frame(websocket.BINARY, b"\0after"))
        assert await reader.read() == b"\x88\x02" + code.to_bytes(2, "big")
        await removed.wait()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_WebSocket_Version": "8"},
        {"Sec_WebSocket_Version": ""},
        {"Sec_WebSocket_Key": ""},
        {"Sec_WebSocket_Key": "x" * 24},
        {"Sec_WebSocket_Key": base64.b64encode(b"x" * 15).decode()},
    ],
)
async def test_bad_handshakes_never_reach_the_streaming_server(
    tmp_path: Path, pki: Pki, headers: dict[str, str]
) -> None:
    async with (
        node(tmp_path, pki) as (server, _),
        connected(server, EXEC, V5, **headers) as (_reader, _writer, head),
    ):
        assert head.startswith(b"HTTP/1.1 400 ")

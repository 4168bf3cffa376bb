"""Sessions that a runtime of this program serves itself, over SPDY and WebSockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.wire import spdy
from kubeletpy.remote.errors import Unimplemented
from kubeletpy.remote.streams import (
    BUFFER,
    ForwardSession,
    ProcessSession,
    ProcessStreams,
    StreamOutput,
)
from kubeletpy.server.streaming import link, sessions
from kubeletpy.server.streaming.options import TUNNEL, V5
from tests.kit.server import Pki, Running, connect, head, node
from tests.unit.server.streaming.test_streams import websocket

ALL = "/exec/n/p/c?command=x&input=1&output=1&error=1"
FORWARD = "/portForward/n/p"
SUCCESS = {"metadata": {}, "status": "Success"}


async def echo(client: ProcessStreams) -> int:
    """Writes what it has read after its end, and exits with 3."""
    await client.stdout.write(await client.stdin.read())
    await client.stderr.write(b"to stderr")
    return 3


async def mirror(port: int, reader: asyncio.StreamReader, writer: StreamOutput) -> None:
    """A server that answers a line with its port and the line."""
    if port == 81:
        raise ConnectionRefusedError("nothing listens")
    await writer.write(b"%d " % port + await reader.readline())


class SpdyPeer:
    """A client that speaks SPDY by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._encoder, self._decoder = spdy.Encoder(), spdy.SpdyDecoder()
        self.accepted: list[int] = []
        self.refused: list[int] = []
        self.ended: set[int] = set()
        self.got: dict[int, bytes] = {}

    def open(self, **headers: str) -> int:
        number, frame = self._encoder.open_stream(headers)
        self._writer.write(frame)
        return number

    def write(self, frame: bytes) -> None:
        self._writer.write(frame)

    async def until(self, *ended: int) -> None:
        """Read until these streams have ended, or the server closes."""
        while not self.ended.issuperset(ended):
            data = await self._reader.read(1 << 16)
            if not data:
                return
            for frame in self._decoder.feed(data):
                if frame.kind == spdy.SYN_REPLY:
                    self.accepted.append(frame.stream)
                elif frame.kind == spdy.RST_STREAM:
                    self.refused.append(frame.stream)
                elif frame.kind == spdy.DATA:
                    self.got[frame.stream] = self.got.get(frame.stream, b"") + frame.data
                if frame.is_last:
                    self.ended.add(frame.stream)


@asynccontextmanager
async def spdy_peer(
    server: Running, path: str, protocol: str = "v4.channel.k8s.io"
) -> AsyncIterator[SpdyPeer]:
    reader, writer = await connect(server)
    writer.write(head(path, "", "POST", X_Stream_Protocol_Version=protocol))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101 ") and protocol.encode() in answer
    try:
        async with asyncio.timeout(20):
            yield SpdyPeer(reader, writer)
    finally:
        writer.transport.abort()


def exit_status(code: int) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


async def test_a_process_over_a_v5_websocket(tmp_path: Path, pki: Pki) -> None:
    blob = bytes(range(256)) * 1000
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(echo)
        async with websocket(server, ALL, V5) as socket:
            assert socket.protocol == V5
            for at in range(0, len(blob), 30_000):
                await socket.send_bytes(b"\0" + blob[at : at + 30_000])
            await socket.send_bytes(b"\xff\0")
            got: dict[int, bytes] = {}
            async for message in socket:
                got[message.data[0]] = got.get(message.data[0], b"") + message.data[1:]
        assert json.loads(got.pop(3)) == exit_status(3)
        assert got == {1: blob, 2: b"to stderr"}


@pytest.mark.parametrize("protocol", ["", "channel.k8s.io"])
async def test_an_old_websocket_has_a_text_for_a_failure(
    tmp_path: Path, pki: Pki, protocol: str
) -> None:
    async def exits(client: ProcessStreams) -> int:
        return 3 if (await client.stdin.readline()) == b"fail\n" else 0

    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(exits)
        text = b"command terminated with non-zero exit code: exit status 3"
        for line, expected in ((b"fail\n", [b"\1", b"\3" + text]), (b"pass\n", [b"\1"])):
            async with websocket(server, ALL, protocol) as socket:
                assert socket.protocol == (protocol or None)
                await socket.send_bytes(b"\0" + line)
                assert [each.data async for each in socket] == expected


async def test_a_process_over_spdy(tmp_path: Path, pki: Pki) -> None:
    blob = bytes(range(256)) * 1000
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(echo)
        async with spdy_peer(server, ALL) as peer:
            error, stdin, stdout, stderr = (
                peer.open(streamType=each) for each in ("error", "stdin", "stdout", "stderr")
            )
            surplus = peer.open(streamType="stdout")
            peer.write(spdy.data(stdin, blob, last=True) + spdy.ping_answer(1))
            await peer.until(error, stdout, stderr)
            assert (peer.accepted, peer.refused) == ([error, stdin, stdout, stderr], [surplus])
            assert json.loads(peer.got[error]) == exit_status(3)
            assert (peer.got[stdout], peer.got[stderr]) == (blob, b"to stderr")


@pytest.mark.parametrize("protocol", [V5, "v4.channel.k8s.io"])
async def test_sizes_of_a_terminal(tmp_path: Path, pki: Pki, protocol: str) -> None:
    async def sizes(client: ProcessStreams) -> int:
        assert client.tty and client.stderr is client.stdout
        async for columns, rows in client.resized():
            await client.stderr.write(b"%dx%d " % (columns, rows))
            if columns == 3:
                break
        return 0

    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(sizes, tty=True)
        path = "/exec/n/p/c?command=x&output=1&error=1&tty=1"
        async with websocket(server, path, protocol) as socket:
            for text in (
                b'{"Width":1,"Height":2}\n',
                b'{"Width":0,"Height":2}',
                b'{"Width":"',
                b"}" + b"x" * 5000,
                b'}{"Width":1e999,"Height":2}',
                b'{"Width":3,"Hei',
                b'ght":4}',
            ):
                await socket.send_bytes(b"\4" + text)
                await asyncio.sleep(0)
            output = [message.data async for message in socket]
        assert b"".join(each[1:] for each in output if each[0] == 1).endswith(b"3x4 ")
        assert json.loads(output[-1][1:]) == SUCCESS


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unimplemented("Exec", "no commands"), "Exec: no commands (UNIMPLEMENTED)"),
        (ValueError("secret"), sessions.FAILED),
    ],
)
async def test_an_error_of_the_runtime_is_in_the_status(
    tmp_path: Path, pki: Pki, error: Exception, message: str
) -> None:
    async def fails(client: ProcessStreams) -> int:
        assert await client.stdin.read() == b""  # not requested
        await client.stdout.write(b"not requested")
        raise error

    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(fails)
        async with websocket(server, "/exec/n/p/c?command=x&error=1", V5) as socket:
            output = [each.data async for each in socket]
        assert [each[0] for each in output] == [3]
        assert json.loads(output[0][1:])["message"] == message


@pytest.mark.parametrize("protocol", [V5, "spdy"])
async def test_a_client_that_vanishes_cancels_the_process(
    tmp_path: Path, pki: Pki, protocol: str
) -> None:
    started, canceled = asyncio.Event(), asyncio.Event()

    async def waits(client: ProcessStreams) -> int:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            canceled.set()
        return 0

    async with node(tmp_path, pki) as (server, runtime), asyncio.timeout(20):
        runtime.url = ProcessSession(waits)
        if protocol == V5:
            async with websocket(server, ALL, V5):
                await started.wait()
        else:
            async with spdy_peer(server, ALL) as peer:
                for each in ("error", "stdin", "stdout", "stderr"):
                    peer.open(streamType=each)
                await started.wait()
        await canceled.wait()


async def test_input_that_is_not_read_makes_the_client_wait(tmp_path: Path, pki: Pki) -> None:
    goes_on, left = asyncio.Event(), list[int]()

    async def slow(client: ProcessStreams) -> int:
        await goes_on.wait()
        left.append(len(client.stdin._buffer))  # type: ignore[attr-defined]
        while await client.stdin.read(1 << 16):
            pass
        return 0

    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(slow)
        async with websocket(server, ALL, V5) as socket:

            async def send() -> None:
                for _ in range(2000):
                    await socket.send_bytes(b"\0" + bytes(16 << 10))
                await socket.send_bytes(b"\xff\0")

            sending = asyncio.create_task(send())
            await asyncio.sleep(0.5)
            assert not sending.done()
            goes_on.set()
            async with asyncio.timeout(30):
                output = [each.data async for each in socket]
                await sending
        assert json.loads(output[-1][1:]) == SUCCESS
        assert left[0] <= 2 * BUFFER + (16 << 10)


async def test_idle_sessions_end(tmp_path: Path, pki: Pki) -> None:
    async def waits(client: ProcessStreams) -> int:
        await asyncio.Event().wait()
        return 0

    async with node(tmp_path, pki, idle_timeout=0.2) as (server, runtime), asyncio.timeout(10):
        runtime.url = ProcessSession(waits)
        async with websocket(server, ALL, V5) as socket:
            assert [each.data async for each in socket] == [b"\1"]


async def test_a_client_opens_its_streams_in_time(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "CREATION_S", 0.1)
    monkeypatch.setattr(link, "CLOSE_S", 0.1)
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(echo)
        async with spdy_peer(server, ALL) as peer:
            peer.open(streamType="stdin")
            await peer.until(0)  # closed by the server
            assert peer.got == {}


def bomb() -> bytes:
    """A new stream whose headers are a hundred times as long as their frame."""
    packer = zlib.compressobj(9, zdict=spdy.DICTIONARY)
    block = packer.compress(struct.pack(">I", 1) + bytes(6 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
    body = struct.pack(">IIH", 1, 0, 0) + block
    return struct.pack(">HHI", 0x8003, spdy.SYN_STREAM, len(body)) + body


def opened(*numbers: int) -> bytes:
    encoder, frames = spdy.Encoder(), b""
    for number in numbers:
        encoder._next = number
        frames += encoder.open_stream({"streamtype": "x"})[1]
    return frames


@pytest.mark.parametrize(
    "attack",
    [bomb(), opened(2), opened(3, 1), opened(1, 1), b"\x80\2\0\1\0\0\0\0", b"\x80\3\0\1\0\0\0\0"],
    ids=["bomb", "even", "falling", "repeated", "version 2", "short"],
)
@pytest.mark.parametrize("path", [ALL, FORWARD])
async def test_a_client_that_breaks_spdy_is_closed(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch, attack: bytes, path: str
) -> None:
    monkeypatch.setattr(link, "CLOSE_S", 0.1)
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ProcessSession(echo) if path == ALL else ForwardSession(mirror)
        protocol = "v4.channel.k8s.io" if path == ALL else sessions.FORWARD
        async with spdy_peer(server, path, protocol) as peer:
            peer.write(attack)
            await peer.until(0)


async def test_connections_over_spdy(tmp_path: Path, pki: Pki) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ForwardSession(mirror)
        async with spdy_peer(server, FORWARD, sessions.FORWARD) as peer:
            numbers = [
                peer.open(streamType=kind, port=port, requestID=name)
                for name, port in (("0", "80"), ("1", "81"))
                for kind in ("error", "data")
            ]
            for name, kind, port in (
                ("2", "data", "0"),
                ("2", "other", "80"),
                ("2" * 65, "data", "80"),
                ("2", "data", "x"),
            ):
                peer.open(streamType=kind, port=port, requestID=name)
            peer.write(spdy.data(numbers[1], b"hello\n", last=True))
            await peer.until(*numbers)
            assert peer.accepted == numbers and len(peer.refused) == 4
            assert peer.got[numbers[1]] == b"80 hello\n" and peer.got[numbers[0]] == b""
            assert peer.got[numbers[2]] == b"error forwarding port 81: nothing listens"


async def test_connections_of_a_client_are_bounded(tmp_path: Path, pki: Pki) -> None:
    """A connection that has ended, or was reset, makes room for another."""
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ForwardSession(mirror)
        async with spdy_peer(server, FORWARD, sessions.FORWARD) as peer:

            def ask(name: str) -> tuple[int, int]:
                error = peer.open(streamType="error", port="80", requestID=name)
                return error, peer.open(streamType="data", port="80", requestID=name)

            pairs = [ask(str(each)) for each in range(sessions.MAX_FORWARDS + 1)]
            await peer.until(*pairs[-1])
            assert tuple(peer.refused) == pairs[-1]
            peer.write(spdy.data(pairs[0][1], b"end\n"))
            await peer.until(*pairs[0])
            peer.write(spdy.refused_stream(pairs[1][1]))
            for name in ("a", "b"):
                error, data = ask(name)
                peer.write(spdy.data(data, b"more\n"))
                await peer.until(error, data)
                assert peer.got[data] == b"80 more\n"


@pytest.mark.parametrize("protocol", ["", "v4.channel.k8s.io"])
async def test_connections_over_a_websocket(tmp_path: Path, pki: Pki, protocol: str) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ForwardSession(mirror, (80, 81))
        async with websocket(server, f"{FORWARD}?port=80,81", protocol) as socket:
            for message in (b"", b"\1error", b"\x40strange", b"\0hello\n"):
                await socket.send_bytes(message)
            got: dict[int, bytes] = {}
            async for each in socket:
                got[each.data[0]] = got.get(each.data[0], b"") + each.data[1:]
        assert got == {
            0: b"\x50\0" + b"80 hello\n",
            1: b"\x50\0",
            2: b"\x51\0",
            3: b"\x51\0error forwarding port 81: nothing listens",
        }


async def test_a_tunnel_is_spdy(tmp_path: Path, pki: Pki) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        runtime.url = ForwardSession(mirror)
        async with websocket(server, FORWARD, TUNNEL) as socket:
            encoder, decoder, got = spdy.Encoder(), spdy.SpdyDecoder(), b""
            for kind in ("error", "data"):
                frame = encoder.open_stream({"streamtype": kind, "port": "80", "requestid": "0"})[1]
                await socket.send_bytes(frame[:5])
                await socket.send_bytes(frame[5:])
            await socket.send_bytes(spdy.data(3, b"hello\n"))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    while b"\n" not in got:
                        for each in decoder.feed(await socket.receive_bytes()):
                            got += each.data if each.kind == spdy.DATA else b""
        assert got == b"80 hello\n"


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head(ALL, "base64.channel.k8s.io"), 400),
        (head(FORWARD + "?port=80", V5), 400),
        (head(ALL, "", X_Stream_Protocol_Version="v3.channel.k8s.io"), 403),
        (head(FORWARD, "", X_Stream_Protocol_Version="v4.channel.k8s.io"), 403),
        (head(ALL, "", Upgrade="h2c"), 400),
        (head(ALL, V5, Sec_WebSocket_Version="12"), 400),
    ],
)
async def test_other_protocols_are_refused(
    tmp_path: Path, pki: Pki, request_head: bytes, status: int
) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        forward = FORWARD.encode() in request_head
        runtime.url = ForwardSession(mirror, (80,)) if forward else ProcessSession(echo)
        reader, writer = await connect(server)
        writer.write(request_head)
        assert (await reader.readline()).split()[1] == str(status).encode()
        writer.transport.abort()

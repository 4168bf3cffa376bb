"""A v5 WebSocket of a client on one side, SPDY of the runtime on the other.

Each message begins with its channel: 0 to 4 are stdin, stdout, stderr, error and resize; 255 says
that the channel in the next byte is closed. Source: KEP-4006; docs/reference, server table.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import WSMsgType, web

from kubeletpy.server.streaming.options import Streams
from kubeletpy.wire import spdy

log = logging.getLogger(__name__)

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_NAMES = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}
READ = 64 << 10


class Translation:
    """One exec or attach."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._socket = socket
        self._reader = reader
        self._writer = writer
        self._numbers: dict[int, int] = {}
        self._decoder = spdy.Decoder()
        self._now = asyncio.get_running_loop().time
        self.moved_at = self._now()

    async def run(self, streams: Streams) -> None:
        """Carry everything until the process has ended or the client has gone."""
        self._open(streams)
        await self._writer.drain()
        async with asyncio.TaskGroup() as group:
            out = group.create_task(self._to_client())
            inward = group.create_task(self._to_runtime())
            await asyncio.wait({out, inward}, return_when=asyncio.FIRST_COMPLETED)
            out.cancel()
            inward.cancel()

    def _open(self, streams: Streams) -> None:
        encoder = spdy.Encoder()
        wanted = {
            ERROR: True,
            STDIN: streams.stdin,
            STDOUT: streams.stdout,
            STDERR: streams.stderr,
            RESIZE: streams.tty,
        }
        for channel, is_wanted in wanted.items():
            if is_wanted:
                number, frame = encoder.open_stream({"streamtype": _NAMES[channel]})
                self._numbers[channel] = number
                self._writer.write(frame)

    async def _to_client(self) -> None:
        channels = {number: channel for channel, number in self._numbers.items()}
        open_ones = {self._numbers[c] for c in (STDOUT, STDERR, ERROR) if c in self._numbers}
        while open_ones:
            piece = await self._reader.read(READ)
            if not piece:
                return
            self.moved_at = self._now()
            for frame in self._decoder.feed(piece):
                if frame.kind == spdy.PING:
                    self._writer.write(spdy.ping_answer(frame.stream))
                channel = channels.get(frame.stream)
                if frame.kind == spdy.DATA and frame.data and channel is not None:
                    await self._socket.send_bytes(bytes((channel,)) + frame.data)
                if frame.is_last:
                    open_ones.discard(frame.stream)

    async def _to_runtime(self) -> None:
        async for message in self._socket:
            self.moved_at = self._now()
            if message.type is not WSMsgType.BINARY or not message.data:
                continue
            channel, content = message.data[0], message.data[1:]
            if channel == CLOSE:
                self._send(content[0] if content else CLOSE, b"", last=True)
            elif channel in (STDIN, RESIZE) and content:
                self._send(channel, content)
            await self._writer.drain()

    def _send(self, channel: int, content: bytes, *, last: bool = False) -> None:
        number = self._numbers.get(channel)
        if number is None or channel not in (STDIN, RESIZE):
            return
        if last:
            del self._numbers[channel]
        self._writer.write(spdy.data(number, content, last=last))


class Tunnel:
    """One port-forward: the messages of a WebSocket are SPDY's bytes."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._socket = socket
        self._reader = reader
        self._writer = writer
        self._now = asyncio.get_running_loop().time
        self.moved_at = self._now()

    async def run(self) -> None:
        """Carry everything until either side closes."""
        async with asyncio.TaskGroup() as group:
            out = group.create_task(self._to_client())
            inward = group.create_task(self._to_runtime())
            await asyncio.wait({out, inward}, return_when=asyncio.FIRST_COMPLETED)
            out.cancel()
            inward.cancel()

    async def _to_client(self) -> None:
        while piece := await self._reader.read(READ):
            self.moved_at = self._now()
            await self._socket.send_bytes(piece)

    async def _to_runtime(self) -> None:
        async for message in self._socket:
            self.moved_at = self._now()
            if message.type is WSMsgType.BINARY:
                self._writer.write(message.data)
                await self._writer.drain()

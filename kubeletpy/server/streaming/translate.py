"""Translates between a client's v5 WebSocket and the runtime's SPDY.

Each message begins with its channel: 0 to 4 are stdin, stdout, stderr, error and resize; 255 means
that the channel in the next byte is closed. Source: KEP-4006; docs/reference/server.csv: streaming.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from kubeletpy.base.wire import spdy
from kubeletpy.base.wire.relay import StreamWork
from kubeletpy.server.streaming.client_socket import ClientSocket
from kubeletpy.server.streaming.options import Streams

log = logging.getLogger(__name__)

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_NAMES = {ERROR: "error", STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", RESIZE: "resize"}
READ = 64 << 10


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(eq=False)
class _BothWays(ABC):
    """Carries data between a client's WebSocket and the runtime's connection."""

    _socket: ClientSocket
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    moved_at: float = field(default_factory=_now, init=False)
    """Event-loop time in seconds at which data was last carried."""
    _outward: StreamWork = field(default_factory=StreamWork, init=False)
    """Work done for the runtime's frames; the client's are counted by its socket."""

    async def carry(self) -> None:
        """Carry everything until either side has ended."""
        async with asyncio.TaskGroup() as group:
            out = group.create_task(self._to_client())
            inward = group.create_task(self._to_runtime())
            await asyncio.wait({out, inward}, return_when=asyncio.FIRST_COMPLETED)
            out.cancel()
            inward.cancel()

    @abstractmethod
    async def _to_client(self) -> None: ...

    @abstractmethod
    async def _to_runtime(self) -> None: ...


@dataclass(eq=False)
class Translation(_BothWays):
    """One exec or attach."""

    _numbers: dict[int, int] = field(default_factory=dict, init=False)
    _decoder: spdy.SpdyDecoder = field(default_factory=spdy.SpdyDecoder, init=False)

    async def run(self, streams: Streams) -> None:
        """Open the streams and carry them until the process ends or the client disconnects."""
        self._open(streams)
        await self._writer.drain()
        await self.carry()

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
        outward = [c for c in (STDOUT, STDERR, ERROR) if c in self._numbers]
        channels = {self._numbers[channel]: channel for channel in outward}
        open_ones = set(channels)
        while open_ones:
            piece = await self._reader.read(READ)
            if not piece:
                return
            self.moved_at = _now()
            for frame in self._decoder.feed(piece):
                await self._outward.did(len(frame.data))
                if frame.kind == spdy.PING:
                    self._writer.write(spdy.ping_answer(frame.stream))
                channel = channels.get(frame.stream)
                if frame.kind == spdy.DATA and frame.data and channel is not None:
                    await self._socket.send(bytes((channel,)), frame.data)
                if frame.is_last:
                    open_ones.discard(frame.stream)

    async def _to_runtime(self) -> None:
        while (message := await self._socket.receive()) is not None:
            self.moved_at = _now()
            if not message:
                continue
            channel, content = message[0], message[1:]
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


@dataclass(eq=False)
class Tunnel(_BothWays):
    """One port-forward: the WebSocket messages carry SPDY bytes."""

    async def _to_client(self) -> None:
        while piece := await self._reader.read(READ):
            self.moved_at = _now()
            await self._outward.did(len(piece))
            await self._socket.send(piece)

    async def _to_runtime(self) -> None:
        while (message := await self._socket.receive()) is not None:
            self.moved_at = _now()
            self._writer.write(message)
            await self._writer.drain()

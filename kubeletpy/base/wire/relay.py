"""Joins the connections of a client and a server, and shares the event loop among all streams.

Back-pressure is passed on: an end is not read while the other can't take more. Nor is it while it
waits for a slice of its event loop. When either end closes, bytes in flight are still delivered to
the other, which is then closed too; the far end is notified a moment later. Must never buffer more
than the transports' own limits, and never outlive either end by more than FLUSH_S.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from kubeletpy.base.structs import Component
from kubeletpy.base.wire.http_server import Hijacked, SentResponse
from kubeletpy.base.wire.upgrade import UpgradeResponse

# Slices of the event loop. Whoever carries a stream (WebSocket, SPDY, port-forward, relay, watch)
# reports each frame that it has handled. After SLICE_WORK it needs another slice. All streams of a
# loop together get SLICES_A_TURN in a turn, first come, first served. So neither a stream of tiny
# frames nor a thousand streams keep a health check waiting.

SLICE_WORK = 100
"""A frame is 1, and each 4 KiB of it 1 more: about 10 µs of CPU time. A slice takes about 1 ms."""
SLICES_A_TURN = 4
"""For all streams of an event loop together."""
_BYTES_SHIFT = 12


class TimeSlices(Component):
    """The slices of one event loop."""

    loop: asyncio.AbstractEventLoop

    def __post_init__(self) -> None:
        self._left = SLICES_A_TURN
        self._waiting: deque[Callable[[], None]] = deque()
        self._turn_ends = False

    def take_slice(self) -> bool:
        """Take a slice of this turn; False: none is left, or others have waited for longer."""
        if self._waiting or self._left <= 0:
            return False
        self._left -= 1
        self._await_end()
        return True

    def when_next(self, run: Callable[[], None]) -> None:
        """Call ``run`` in a later turn, with a slice of that turn taken."""
        self._waiting.append(run)
        self._await_end()

    def _await_end(self) -> None:
        if not self._turn_ends:
            self._turn_ends = True
            self.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_ends = False
        self._left = SLICES_A_TURN
        while self._waiting and self._left > 0:
            self._left -= 1
            self._waiting.popleft()()
        if self._waiting or self._left < SLICES_A_TURN:
            self._await_end()


class StreamWork:
    """The work of one stream within its slice. Create it on the loop that runs the stream."""

    def __init__(self) -> None:
        self._slices = slices_of(asyncio.get_running_loop())
        self._done = 0

    def exceeds(self, size: int) -> bool:
        """Report a frame of ``size`` bytes; returns whether the stream has to wait now.

        Whoever gets True calls :meth:`resume_later` (or awaits :meth:`next_slice`).
        """
        self._done += 1 + (size >> _BYTES_SHIFT)
        while self._done >= SLICE_WORK:
            self._done -= SLICE_WORK
            if not self._slices.take_slice():
                return True
        return False

    def resume_later(self, run: Callable[[], None]) -> None:
        """Call ``run`` once the stream has a slice."""
        self._slices.when_next(run)

    async def next_slice(self) -> None:
        """Wait for a slice."""
        got = asyncio.get_running_loop().create_future()
        self._slices.when_next(lambda: None if got.done() else got.set_result(None))
        await got

    async def did(self, size: int) -> None:
        """Report a frame of ``size`` bytes, and wait where the slice is used up."""
        if self.exceeds(size):
            await self.next_slice()


_of_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, TimeSlices] = (
    weakref.WeakKeyDictionary()
)


def slices_of(loop: asyncio.AbstractEventLoop) -> TimeSlices:
    """The slices that all streams of a loop share."""
    found = _of_loops.get(loop)
    if found is None:
        found = _of_loops[loop] = TimeSlices(loop)
    return found


FLUSH_S = 10.0
"""How long the last bytes may take once one end has closed."""
LINGER_S = 1.0
"""Delay before the far end is notified that the near one has closed."""
WRITE_BUFFER = 256 << 10


class Leaving(Component, asyncio.Protocol):
    """Closes a connection whose other side has closed, a moment later.

    If a connection ends before a runtime's streaming server has answered all its SPDY streams, the
    server waits permanently for its own answers (containerd 1.6 and 2.x, moby/spdystream). It then
    holds a lock without which the container's exit is not processed, and the pod can't be stopped
    any more. The delay lets the runtime answer the client's last requests first.
    """

    transport: asyncio.Transport
    lost: Callable[[], None] = lambda: None
    """Called when it is closed: by the peer, or after LINGER_S, with FLUSH_S for what is to be
    written."""

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._timers = (
            loop.call_later(LINGER_S, self.transport.close),
            loop.call_later(FLUSH_S, self.transport.abort),
        )
        self.transport.set_protocol(self)
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers: the connection is closed."""
        for timer in self._timers:
            timer.cancel()
        self.lost()


class RelayEnd(Component, asyncio.Protocol):
    """One end. Created in pairs by Relay; a transport is bound to it."""

    relay: Relay

    def __post_init__(self) -> None:
        self._work = StreamWork()
        self._waits = False
        """Whether it is read again only in its turn."""
        self._is_ahead = False
        """Whether the other end has not caught up with what was read here."""
        self.transport: asyncio.Transport | None = None
        self.other: RelayEnd

    def bind(self, transport: asyncio.Transport) -> None:
        """Make this the protocol of a connected transport."""
        self.transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        transport.set_protocol(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The peer has closed, or everything is written after a close."""
        self.relay.end_lost(self)

    def data_received(self, data: bytes) -> None:
        """Pass the bytes on."""
        self.relay.moved_at = self.relay.loop.time()
        other = self.other.transport
        if other is not None and not other.is_closing():
            other.write(data)
        if not self._waits and self._work.exceeds(len(data)):
            self._waits = True
            self._read_or_pause()
            self._work.resume_later(self._has_its_turn)

    def _has_its_turn(self) -> None:
        self._waits = False
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._waits or self._is_ahead:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def eof_received(self) -> bool:
        """The peer sends no more: flush and close both (there is no half-open TLS)."""
        self.relay.close()
        return False

    def pause_writing(self) -> None:
        """The peer is slow: pause the other end."""
        self.other.set_ahead(True)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self.other.set_ahead(False)

    def set_ahead(self, is_ahead: bool) -> None:
        """Whether the other end's peer has not read enough of what came from here."""
        self._is_ahead = is_ahead
        self._read_or_pause()


class Relay:
    """Joins two connected transports until one of them closes, or nothing moves for too long."""

    def __init__(self) -> None:
        self.near, self.far = RelayEnd(self), RelayEnd(self)
        self.near.other, self.far.other = self.far, self.near
        self.loop = asyncio.get_running_loop()
        self.moved_at = self.loop.time()
        self._lost: set[RelayEnd] = set()
        self._flush: asyncio.TimerHandle | None = None
        self._leaving = False
        self._finished = self.loop.create_future()

    async def run(
        self,
        near: asyncio.Transport,
        far: asyncio.Transport,
        *,
        idle_timeout: float,
        far_first: bytes = b"",
        near_first: bytes = b"",
    ) -> None:
        """Relay until the end; both transports are closed when this returns or is cancelled.

        Args:
            idle_timeout: seconds without a byte after which both are closed; 0 for never.
            near_first, far_first: bytes already read from each end, to be passed on first.
        """
        timer: asyncio.TimerHandle | None = None

        def check_idle() -> None:
            nonlocal timer
            left = self.moved_at + idle_timeout - self.loop.time()
            if left <= 0:
                self.abort()
                return
            timer = self.loop.call_later(left, check_idle)

        try:
            self.near.bind(near)
            self.far.bind(far)
            if near_first:
                far.write(near_first)
            if far_first:
                near.write(far_first)
            near.resume_reading()
            far.resume_reading()
            if near.is_closing() or far.is_closing():
                self.close()
            if idle_timeout > 0:
                timer = self.loop.call_later(idle_timeout, check_idle)
            await self._finished
        finally:
            for each in (timer, self._flush):
                if each is not None:
                    each.cancel()
            self.abort()

    def close(self) -> None:
        """Flush and close both ends, within FLUSH_S."""
        near, far = self.near.transport, self.far.transport
        if near is not None and not near.is_closing():
            near.close()
        if far is not None and not far.is_closing() and not self._leaving:
            self._leaving = True
            Leaving(far, lambda: self.end_lost(self.far))
        if self._flush is None:
            self._flush = self.loop.call_later(FLUSH_S, self.abort)

    def abort(self) -> None:
        """Close both ends at once."""
        for end in (self.near, self.far):
            if end.transport is not None and end not in self._lost:
                end.transport.abort()

    def end_lost(self, end: RelayEnd) -> None:
        """An end has closed."""
        self._lost.add(end)
        if len(self._lost) == 2:
            if not self._finished.done():
                self._finished.set_result(None)
        else:
            self.close()


# Clients whose connections were upgraded. A hijacked connection never leaks: it is closed when its
# relay ends, however that ends.

_ANSWER_HEADERS = frozenset(
    {
        "connection",
        "upgrade",
        "x-stream-protocol-version",
        "x-accepted-stream-protocol-versions",
        "sec-websocket-accept",
        "sec-websocket-protocol",
    }
)
"""The headers a client needs for an upgrade; no others of the upstream answer reach it."""


async def join(
    request: web.Request, answer: UpgradeResponse, *, idle_timeout: float
) -> SentResponse:
    """Answer the client's upgrade and relay until either side closes.

    Raises:
        ConnectionResetError: the client has already disconnected; ``answer``'s transport is closed.
    """
    try:
        client = Hijacked(request)
    except ConnectionResetError:
        answer.transport.abort()
        raise
    lines = [f"HTTP/1.1 101 {answer.reason or 'Switching Protocols'}"]
    lines += [f"{k}: {v}" for k, v in answer.headers if k.lower() in _ANSWER_HEADERS]
    relay = Relay()
    client.transport.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace"))
    try:
        await relay.run(
            client.transport,
            answer.transport,
            idle_timeout=idle_timeout,
            near_first=client.early,
            far_first=answer.rest,
        )
    finally:
        client.release()
    return SentResponse()


@asynccontextmanager
async def streams(
    request: web.Request, head: bytes, limit: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Send the head of an answer; then the client's connection as streams, closed on exit.

    Args:
        limit: bytes that wait for their reader; at twice as many the client has to wait.

    Raises:
        ConnectionResetError: the client has already disconnected.
    """
    hijacked = Hijacked(request)
    client = hijacked.transport
    client.write(head)
    try:
        reader, writer = as_streams(client, hijacked.early, limit)
        yield reader, writer
        if not client.is_closing():  # CPython 3.11.2 aborts no TLS connection that was closed twice
            client.close()
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(FLUSH_S):
                await writer.wait_closed()
    finally:
        client.abort()
        hijacked.release()


def as_streams(
    transport: asyncio.Transport, early: bytes, limit: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection as asyncio streams; ``early``: bytes of it that were read already."""
    reader = asyncio.StreamReader(limit=limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    writer = asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if early:
        reader.feed_data(early)
    transport.resume_reading()
    return reader, writer

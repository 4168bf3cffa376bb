"""Sessions of clients that a runtime inside this program serves itself: exec, attach, port-forward.

A runtime of its own process has a streaming server, and answers with its URL. One of this process
answers with a session instead, which the agent's server connects to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from kubeletpy.base.structs import Component

BUFFER = 64 << 10
"""Bytes of a client that wait for the runtime; at twice as many the client has to wait."""
PIECE = 32 << 10
"""Bytes that are sent to a client at once."""


class StreamOutput(Component):
    """Where a runtime writes for a client."""

    # sends a piece, once the client has room for it.
    send: Callable[[bytes], Awaitable[None]]

    async def write(self, data: bytes) -> None:
        """Send bytes; returns when the client has room for more. Raises ConnectionError."""
        for start in range(0, len(data), PIECE):
            await self.send(data[start : start + PIECE])


class _Gate(asyncio.Transport):
    """Is paused by a StreamReader whose bytes wait."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()

    def pause_reading(self) -> None:
        self.open.clear()

    def resume_reading(self) -> None:
        self.open.set()


class StreamInput(Component):
    """The bytes of a client on their way to a runtime, which reads them from ``reader``."""

    def __post_init__(self) -> None:
        self.reader = asyncio.StreamReader(limit=BUFFER)
        self._gate = _Gate()
        self.reader.set_transport(self._gate)
        self._ended = False

    async def feed(self, data: bytes, *, last: bool = False) -> None:
        """Add bytes, and wait until few enough are left; none are added after the last ones."""
        if self._ended:
            return
        if data:
            self.reader.feed_data(data)
        if last:
            self._ended = True
            self.reader.feed_eof()
        await self._gate.open.wait()


class ProcessStreams(Component):
    """The client's end of an exec or attach, for the runtime.

    A stream that the client has not requested is empty, or discards what is written.
    """

    stdin: asyncio.StreamReader
    stdout: StreamOutput
    # the same as ``stdout`` for a terminal.
    stderr: StreamOutput
    # whether the client has a terminal.
    tty: bool = False

    def __post_init__(self) -> None:
        self._size = (0, 0)
        self._resized = asyncio.Event()

    def resize(self, size: tuple[int, int]) -> None:
        """Report a size of the client's terminal; called by the server."""
        self._size = size
        self._resized.set()

    async def resized(self) -> AsyncIterator[tuple[int, int]]:
        """Each size of the client's terminal, from the first on, in columns and rows.

        If several have come since the last one, only the newest counts.
        """
        while True:
            await self._resized.wait()
            self._resized.clear()
            yield self._size


class ProcessSession(Component):
    """An exec or attach: ``run`` returns the exit code, or raises CRIError."""

    run: Callable[[ProcessStreams], Awaitable[int]]
    # whether it has a terminal.
    tty: bool = False


class ForwardSession(Component):
    """A port-forward: ``connect`` carries one connection to a port, until it returns.

    Its text is shown to the client if it raises CRIError or OSError.
    """

    connect: Callable[[int, asyncio.StreamReader, StreamOutput], Awaitable[None]]
    # the ports of a WebSocket; SPDY names a port with each connection.
    ports: tuple[int, ...] = ()

"""The agent's way to the API: a relay on a port of its own that can be closed and opened again.

Closed, connections are refused and those that exist are reset, as behind a firewall or while an
API server restarts.
"""

from __future__ import annotations

import asyncio


class Door:
    """Relays bytes to a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Take connections; always on the same port."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Refuse connections and cut those that exist."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(far_writer)
            try:
                there = asyncio.create_task(_copy(reader, far_writer))
                await _copy(far_reader, writer)
                there.cancel()
            finally:
                self._writers.discard(far_writer)
                far_writer.transport.abort()
        except OSError:
            pass  # nobody listens there: this side is closed below, which tells the client
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass  # one of both was cut: the end of the other follows
    finally:
        writer.transport.abort()

"""A connection in memory: ours on one side, h2's server on the other. For virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings

from kubeletpy.kubeapi.http2 import Http2Connection, Stream
from tests.kit.virtual_time import settle

GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/x")]
OK = [(":status", "200")]


class _Transport(asyncio.Transport):
    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def write(self, data: Any) -> None:
        self._wire.take(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self._wire.unread

    def close(self) -> None:
        self._wire.closed = "closed"

    def abort(self) -> None:
        self._wire.closed = "aborted"


class Wire:
    """``sent``: what the server has understood; ``closed``: how the client ended it."""

    def __init__(self, **settings: int) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        self.server = h2.connection.H2Connection(config)
        codes = h2.settings.SettingCodes
        self.server.local_settings = h2.settings.Settings(
            client=False, initial_values={codes[name]: value for name, value in settings.items()}
        )
        self.sent: list[h2.events.Event] = []
        self.closed = ""
        self.unread = 0
        self.reads = True
        self.changes = 0
        self.client = Http2Connection(self._changed)
        self.client.connection_made(_Transport(self))
        self.server.initiate_connection()
        self.reply()

    def _changed(self) -> None:
        self.changes += 1

    def take(self, data: bytes) -> None:
        if not self.reads:
            self.unread += len(data)
            return
        self.sent += self.server.receive_data(data)

    def reply(self, *, by: int = 1 << 20) -> None:
        """Give the client the server's output, so many bytes at a time."""
        while data := self.server.data_to_send(by):
            self.client.data_received(data)

    def say(self, raw: bytes) -> None:
        self.client.data_received(raw)

    async def ask(self, body: bytes | None = None, seconds: float = 3600.0) -> Stream:
        deadline = asyncio.get_running_loop().time() + seconds
        return await self.client.request(GET, body, deadline)

    async def requested(self, body: bytes | None = None, seconds: float = 3600.0) -> Stream:
        """A request whose head the server has sent."""
        before = len(self.of(h2.events.RequestReceived))
        asking = asyncio.ensure_future(self.ask(body, seconds))
        await settle()
        assert len(self.of(h2.events.RequestReceived)) == before + 1
        self.server.send_headers(self.of(h2.events.RequestReceived)[-1].stream_id, OK)
        self.reply()
        return await asking

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.sent if isinstance(event, kind)]

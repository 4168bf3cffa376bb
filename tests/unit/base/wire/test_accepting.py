"""On a machine without free descriptors, connections wait and little is logged."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from kubeletpy.base.wire.listener import ConnectionLimiter, Listener
from tests.unit.base.wire.echo import Echo

RETRIES = 4


class NoDescriptors(socket.socket):
    """A listening socket that accepts nothing at first, as if no descriptor were free."""

    tries = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.tries += 1
        if self.tries <= RETRIES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def test_a_connection_waits_until_there_are_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kubeletpy.base.wire.listener.ACCEPT_RETRY_S", 0.01)
    sock = NoDescriptors()
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    limiter = ConnectionLimiter(10)
    listener = Listener(sock, limiter, lambda on_lost: Echo(limiter, on_lost))
    listener.start()
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        writer.close()
    listener.close()
    assert sock.tries > RETRIES
    assert [record.message for record in caplog.records] == ["connections have to wait"]
    assert caplog.records[0].exc_info is None

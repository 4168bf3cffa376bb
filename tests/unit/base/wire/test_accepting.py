"""On a machine without free descriptors, connections wait and little is logged."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from kubeletpy.base.wire.listener import LimitedListener, ListeningSocket, LoopProblems, guarded
from kubeletpy.server.health import listen

RETRIES = 4


class Out:
    """Fails a few times, as accept does when the process has no free descriptor."""

    def __init__(self, taken: Any) -> None:
        self.left, self._taken = RETRIES, taken

    def __call__(self) -> tuple[socket.socket, Any]:
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        found: tuple[socket.socket, Any] = self._taken()
        return found


@pytest.mark.parametrize("limiter", [False, True])
async def test_a_connection_waits_until_there_are_descriptors(
    limiter: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("asyncio.constants.ACCEPT_RETRY_DELAY", 0.01)
    loop, tries = asyncio.get_running_loop(), []
    problems = LoopProblems()

    def handle(where: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        tries.append(context["message"])
        problems(where, context)

    loop.set_exception_handler(handle)
    listening: ListeningSocket = listen("127.0.0.1", 0)
    if limiter:
        with listening:
            listening = guarded(listening, 10)
    assert isinstance(listening, LimitedListener) is limiter
    monkeypatch.setattr(listening, "accept_next", Out(listening.accept_next))

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"served")
        writer.close()

    server = await asyncio.start_server(answer, sock=listening)
    async with server, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        assert await reader.read() == b"served"
        writer.close()
    assert tries == ["socket.accept() out of system resource"] * RETRIES
    assert [record.message for record in caplog.records] == ["connections have to wait"]
    assert caplog.records[0].exc_info is None


async def test_other_problems_are_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("something else")
    except ValueError as error:
        context = {"message": "it broke", "exception": error}
    LoopProblems()(asyncio.get_running_loop(), context)
    (stated,) = caplog.records
    assert stated.message == "it broke"
    assert stated.exc_info is not None


def test_other_errors_of_accept_do_not_end_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as listening:
        for _ in range(2):
            with pytest.raises(BlockingIOError, match="temporarily"):
                listening.accept()

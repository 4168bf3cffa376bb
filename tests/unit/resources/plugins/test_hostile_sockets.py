"""Sockets in plugins_registry that are silent, or send HTTP/2 frames without end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from kubeletpy.base.wire.http2 import Exchange
from kubeletpy.resources.plugins import plugin_manager
from kubeletpy.resources.plugins.model import Conversation, PluginRefused, Stamp
from kubeletpy.resources.plugins.plugin_manager import (
    MAX_ANSWER,
    PluginManager,
    SocketRegistrations,
)
from tests.turns import turns_measured
from tests.unit.probes.handlers.test_grpc_floods import FLOODS, SETTINGS

SOCKETS = 400
LIMIT_S = 0.05


class Counts:
    def show(self, desired: Sequence[str], registered: Sequence[str]) -> None:
        self.registered = registered


class Counted(SocketRegistrations):
    """Registrations that set ``all_tried`` when one attempt per socket has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.all_tried = asyncio.Event()
        self._ended: set[str] = set()

    @contextlib.asynccontextmanager
    async def open(self, socket: str, stamp: Stamp) -> AsyncIterator[Conversation]:
        try:
            async with super().open(socket, stamp) as conversation:
                yield conversation
        finally:
            self._ended.add(socket)
            if len(self._ended) == SOCKETS:
                self.all_tried.set()


@contextlib.contextmanager
def silent(directory: Path, number: int) -> Iterator[dict[str, Stamp]]:
    """Sockets that take connections and never answer."""
    with contextlib.ExitStack() as stack:
        found = {}
        for each in range(number):
            path = str(directory / f"{each}.sock")
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(path)
            listening.listen(4)
            found[path] = (each, 1)
        yield found


async def test_silent_sockets_never_hold_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is not held when hundreds appear, nor when all of them time out together."""
    monkeypatch.setattr(plugin_manager, "CONNECT_S", 1.0)
    registrations = Counted()
    manager = PluginManager(tmp_path, {}, registrations, Counts())
    with silent(tmp_path, SOCKETS) as sockets, turns_measured() as turns:
        manager.update_sockets(sockets)
        await registrations.all_tried.wait()
        await asyncio.sleep(0)  # the last of them is noted
        assert len(manager.plugins) == SOCKETS
        manager.update_sockets({})
    assert all("no answer within 1s" in each.problem for each in manager.plugins.values())
    assert turns.longest < LIMIT_S, f"{turns.longest:.3f} s of CPU time in one turn"


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_of_frames_ends_a_registration(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, again = FLOODS[kind]
    block = again * (65536 // len(again) + 1)
    fed = 0
    feed = Exchange.feed

    def counted(exchange: Exchange, data: bytes) -> bytes:
        nonlocal fed
        fed += len(data)
        return feed(exchange, data)

    monkeypatch.setattr(Exchange, "feed", counted)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(24)
            writer.write(start[: len(SETTINGS)])
            await reader.read(100)
            writer.write(start[len(SETTINGS) :])
            while True:
                writer.write(block)
                await writer.drain()

    path = str(tmp_path / "x.sock")
    server = await asyncio.start_unix_server(talk, path)
    with pytest.raises(PluginRefused, match=r"of plugin at|connecting to plugin at"):
        async with SocketRegistrations().open(path, (1, 1)) as conversation:
            await conversation.info()
    assert fed <= 2 * MAX_ANSWER
    server.close()

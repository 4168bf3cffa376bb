"""Sockets of a real directory are noticed when they appear and disappear."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletpy.resources.plugins import plugin_manager
from kubeletpy.resources.plugins.model import Stamp
from kubeletpy.resources.plugins.plugin_manager import PluginSockets, find_sockets


def listen(path: Path) -> None:
    """Make a socket file, even if its directory has a path too long for a socket."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


class Listener:
    """A listener that keeps the last set of sockets and can wait for another."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sockets: dict[str, Stamp] = {}
        self._changes = asyncio.Event()

    def __call__(self, found: dict[str, Stamp]) -> None:
        self.sockets = found
        self._changes.set()

    @property
    def names(self) -> set[str]:
        return {str(Path(path).relative_to(self.root)) for path in self.sockets}

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not done():
                self._changes.clear()
                await self._changes.wait()


@asynccontextmanager
async def followed(root: Path) -> AsyncIterator[Listener]:
    notified = Listener(root)
    running = asyncio.create_task(PluginSockets(root, notified).run())
    try:
        yield notified
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_those_that_are_there_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    listen(tmp_path / "a.sock")
    listen(tmp_path / "deep" / "er" / "b.sock")
    listen(tmp_path / ".hidden.sock")
    (tmp_path / "file").touch()
    (tmp_path / "link.sock").symlink_to(tmp_path / "a.sock")
    async with followed(tmp_path) as notified:
        await notified.until(lambda: bool(notified.sockets))
        assert notified.names == {"a.sock", "deep/er/b.sock"}


async def test_come_go_and_come_again(tmp_path: Path) -> None:
    root = tmp_path / "plugins_registry"
    async with followed(root) as notified:
        root.mkdir(exist_ok=True)
        listen(root / "a.sock")
        await notified.until(lambda: notified.names == {"a.sock"})
        first = notified.sockets[str(root / "a.sock")]
        (root / "a.sock").chmod(0o777)
        (root / "new" / "deeper").mkdir(parents=True)
        listen(root / "new" / "deeper" / "b.sock")
        await notified.until(lambda: notified.names == {"a.sock", "new/deeper/b.sock"})
        assert notified.sockets[str(root / "a.sock")] == first
        (root / "a.sock").unlink()
        listen(root / "a.sock")
        await notified.until(lambda: notified.sockets.get(str(root / "a.sock"), first) != first)
        (root / "new" / "deeper" / "b.sock").unlink()
        (root / "a.sock").unlink()
        await notified.until(lambda: not notified.sockets)


async def test_the_directory_itself_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_manager, "SETTLED_S", 0.2)
    root = tmp_path / "plugins_registry"
    root.mkdir()
    listen(root / "a.sock")
    async with followed(root) as notified:
        await notified.until(lambda: notified.names == {"a.sock"})
        root.rename(tmp_path / "away")
        await notified.until(lambda: not notified.names)
        listen(root / "b.sock")
        await notified.until(lambda: notified.names == {"b.sock"})


def test_the_search_for_sockets_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_manager, "MAX_SOCKETS", 2)
    monkeypatch.setattr(plugin_manager, "MAX_DEPTH", 1)
    (tmp_path / "1" / "2").mkdir(parents=True)
    for number in range(3):
        listen(tmp_path / f"{number}.sock")
    listen(tmp_path / "1" / "2" / "deep.sock")
    seen = find_sockets(str(tmp_path))
    assert (len(seen.sockets), seen.cut) == (2, True)
    assert set(seen.directories) == {str(tmp_path), str(tmp_path / "1")}
    assert seen.directories[str(tmp_path)] == tmp_path.stat().st_ino

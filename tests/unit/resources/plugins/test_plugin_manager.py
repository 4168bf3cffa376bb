"""Plugins over virtual time: registered, refused, retried, removed and created again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletpy.resources.plugins.model import CSI, Conversation, PluginInfo, PluginRefused, Stamp
from kubeletpy.resources.plugins.plugin_manager import PluginManager
from tests.virtual_time import run

A, B = "/p/a.sock", "/p/b.sock"


class Node:
    """Plugins, a handler and a log of their calls; each line begins with the second."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.type = CSI
        self.refuse = ""
        self.break_handler = False
        self.silent = False
        self.deaf = False
        self.registered: dict[str, PluginInfo] = {}
        self.gauge: tuple[Sequence[str], Sequence[str]] = ((), ())
        handlers = {CSI: self}
        self.manager = PluginManager(Path("/p"), handlers, self, self)

    def log(self, text: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time():g} {text}")

    def logged(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    # Registrations
    @asynccontextmanager
    async def open(self, socket: str, stamp: Stamp) -> AsyncIterator[Conversation]:
        if self.silent:
            raise PluginRefused("nobody answers")
        node = self

        class Talk:
            async def info(self) -> PluginInfo:
                await asyncio.sleep(0)
                return PluginInfo(node.type, "x", socket, ("1.0.0",), socket, stamp)

            async def notify(self, *, registered: bool, error: str = "") -> None:
                node.log(f"notify {registered} {error}".rstrip())
                if node.deaf:
                    raise PluginRefused("deaf")

        yield Talk()

    # PluginHandler
    def validate(self, info: PluginInfo) -> None:
        if info.name in self.registered:
            raise PluginRefused("there is one")
        if self.refuse:
            raise PluginRefused(self.refuse)

    async def register(self, info: PluginInfo) -> None:
        if self.break_handler:
            raise KeyError("a bug")
        self.log(f"register {info.socket} {info.stamp[0]}")
        self.registered[info.name] = info

    async def deregister(self, info: PluginInfo) -> None:
        if self.registered.get(info.name) == info:
            del self.registered[info.name]
        self.log(f"deregister {info.socket} {info.stamp[0]}")

    # PluginCounts
    def show(self, desired: Sequence[str], registered: Sequence[str]) -> None:
        self.gauge = (desired, registered)


async def settle() -> None:
    await asyncio.sleep(0.1)


def test_a_plugin_is_registered_and_removed() -> None:
    async def main() -> None:
        node = Node()
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        assert node.logged() == ["0 register /p/a.sock 1", "0 notify True"]
        assert node.gauge == ([A], [A])
        node.manager.update_sockets({})
        await settle()
        assert node.logged() == ["0.1 deregister /p/a.sock 1"]
        assert node.gauge == ([], [])
        assert node.manager.plugins == {}

    run(main())


def test_a_recreated_socket_is_registered_again() -> None:
    async def main() -> None:
        node = Node()
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        node.manager.update_sockets({A: (2, 2)})
        await settle()
        assert node.logged()[2:] == [
            "0.1 deregister /p/a.sock 1",
            "0.1 register /p/a.sock 2",
            "0.1 notify True",
        ]

    run(main())


def test_refused_until_it_is_not() -> None:
    async def main() -> None:
        node = Node()
        node.refuse = "bad version"
        node.manager.update_sockets({A: (1, 1)})
        await asyncio.sleep(2)
        assert node.logged() == [
            "0 notify False bad version",
            "0.5 notify False bad version",
            "1.5 notify False bad version",
        ]
        assert node.manager.plugins[A].problem == "bad version"
        assert node.gauge == ([A], [])
        node.refuse = ""
        await asyncio.sleep(2)
        assert node.logged() == ["3.5 register /p/a.sock 1", "3.5 notify True"]

    run(main())


def test_a_plugin_of_an_unknown_type_is_refused() -> None:
    async def main() -> None:
        node = Node()
        node.type = "Toaster"
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        assert node.logged() == [
            "0 notify False no handler registered for plugin type: Toaster at socket /p/a.sock "
            "(this node has: CSIPlugin)"
        ]

    run(main())


def test_one_that_cannot_be_reported_is_not_kept() -> None:
    async def main() -> None:
        node = Node()
        node.deaf = True
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        assert node.logged() == [
            "0 register /p/a.sock 1",
            "0 notify True",
            "0 deregister /p/a.sock 1",
        ]
        assert node.manager.plugins[A].registered is None

    run(main())


def test_a_failing_handler_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Node()
        node.break_handler = True
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        assert node.manager.plugins[A].problem == "internal error: KeyError"
        node.break_handler = False
        await asyncio.sleep(1)
        assert node.logged() == ["0.5 register /p/a.sock 1", "0.5 notify True"]

    run(main())
    assert "plugin handler broke" in caplog.text


def test_the_successor_takes_the_name_as_soon_as_it_is_free() -> None:
    async def main() -> None:
        node = Node()
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        node.manager.update_sockets({A: (1, 1), B: (2, 2)})
        await asyncio.sleep(30)
        assert node.logged()[-1].endswith("notify False there is one")
        at = asyncio.get_running_loop().time()
        node.manager.update_sockets({B: (2, 2)})
        await settle()
        assert node.logged() == [
            f"{at:g} deregister /p/a.sock 1",
            f"{at:g} register /p/b.sock 2",
            f"{at:g} notify True",
        ]

    run(main())


def test_a_silent_socket_does_not_delay_others() -> None:
    async def main() -> None:
        node = Node()
        node.silent = True
        node.manager.update_sockets({A: (1, 1)})
        await settle()
        node.silent = False
        node.manager.update_sockets({A: (1, 1), B: (2, 2)})
        await settle()
        assert node.logged() == ["0.1 register /p/b.sock 2", "0.1 notify True"]

    run(main())

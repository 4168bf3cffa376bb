"""Plugins over virtual time: registered, refused, retried, removed and created again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kubeletpy.base.wire.http2 import Exchange
from kubeletpy.remote.generated import pluginregistration_pb2 as pb
from kubeletpy.resources.plugins import plugin_manager
from kubeletpy.resources.plugins.model import CSI, Conversation, PluginInfo, PluginRefused, Stamp
from kubeletpy.resources.plugins.plugin_manager import (
    MAX_ANSWER,
    PluginManager,
    PluginSockets,
    SocketRegistrations,
    find_sockets,
    read_info,
)
from tests.kit.costs import turns_measured
from tests.kit.virtual_time import on_virtual_time
from tests.unit.probes.handlers.test_grpc_floods import FLOODS, SETTINGS

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


@on_virtual_time
async def test_a_plugin_is_registered_and_removed() -> None:
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


@on_virtual_time
async def test_a_recreated_socket_is_registered_again() -> None:
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


@on_virtual_time
async def test_refused_until_it_is_not() -> None:
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


@on_virtual_time
async def test_a_plugin_of_an_unknown_type_is_refused() -> None:
    node = Node()
    node.type = "Toaster"
    node.manager.update_sockets({A: (1, 1)})
    await settle()
    assert node.logged() == [
        "0 notify False no handler registered for plugin type: Toaster at socket /p/a.sock "
        "(this node has: CSIPlugin)"
    ]


@on_virtual_time
async def test_one_that_cannot_be_reported_is_not_kept() -> None:
    node = Node()
    node.deaf = True
    node.manager.update_sockets({A: (1, 1)})
    await settle()
    assert node.logged() == ["0 register /p/a.sock 1", "0 notify True", "0 deregister /p/a.sock 1"]
    assert node.manager.plugins[A].registered is None


@on_virtual_time
async def test_a_failing_handler_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.break_handler = True
    node.manager.update_sockets({A: (1, 1)})
    await settle()
    assert node.manager.plugins[A].problem == "internal error: KeyError"
    node.break_handler = False
    await asyncio.sleep(1)
    assert node.logged() == ["0.5 register /p/a.sock 1", "0.5 notify True"]
    assert "plugin handler broke" in caplog.text


@on_virtual_time
async def test_the_successor_takes_the_name_as_soon_as_it_is_free() -> None:
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


@on_virtual_time
async def test_a_silent_socket_does_not_delay_others() -> None:
    node = Node()
    node.silent = True
    node.manager.update_sockets({A: (1, 1)})
    await settle()
    node.silent = False
    node.manager.update_sockets({A: (1, 1), B: (2, 2)})
    await settle()
    assert node.logged() == ["0.1 register /p/b.sock 2", "0.1 notify True"]


# Sockets of a real directory are noticed when they appear and disappear.


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


# Sockets in plugins_registry that are silent, or send HTTP/2 frames without end.

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


# The registration service of a real server on a socket, and answers that are refused.

STAMP = (1, 1)
Context = grpc.aio.ServicerContext[pb.RegistrationStatus, pb.RegistrationStatusResponse]


async def test_a_conversation(tmp_path: Path) -> None:
    heard: list[pb.RegistrationStatus] = []

    async def info(_: pb.InfoRequest, __: object) -> pb.PluginInfo:
        return pb.PluginInfo(
            type="CSIPlugin", name="x", endpoint="/run/x.sock", supported_versions=["1.0.0"]
        )

    async def notify(status: pb.RegistrationStatus, _: Context) -> pb.RegistrationStatusResponse:
        heard.append(status)
        return pb.RegistrationStatusResponse()

    server = grpc.aio.server()
    methods = {
        "GetInfo": grpc.unary_unary_rpc_method_handler(
            info, pb.InfoRequest.FromString, pb.PluginInfo.SerializeToString
        ),
        "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
            notify,
            pb.RegistrationStatus.FromString,
            pb.RegistrationStatusResponse.SerializeToString,
        ),
    }
    service = "pluginregistration.Registration"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    socket = str(tmp_path / "reg.sock")
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        async with SocketRegistrations().open(socket, STAMP) as conversation:
            assert await conversation.info() == PluginInfo(
                "CSIPlugin", "x", "/run/x.sock", ("1.0.0",), socket, STAMP
            )
            await conversation.notify(registered=False, error="no")
            await conversation.notify(registered=True)
    finally:
        await server.stop(None)
    assert [(status.plugin_registered, status.error) for status in heard] == [
        (False, "no"),
        (True, ""),
    ]


async def test_a_missing_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_manager, "CONNECT_S", 0.2)
    why = r"plugin at .*/dead\.sock: no answer within .*No such file"
    with pytest.raises(PluginRefused, match=why):
        async with SocketRegistrations().open(str(tmp_path / "dead.sock"), STAMP) as conversation:
            await conversation.info()


GOOD = {"type": "CSIPlugin", "name": "x"}


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({**GOOD, "type": ""}, "gives no type"),
        ({**GOOD, "name": ""}, "gives no name"),
        ({**GOOD, "name": "x" * 300}, "is no name"),
        ({**GOOD, "name": "x\ny"}, "is no name"),
        ({**GOOD, "supported_versions": ["1"] * 65}, "more than 64 versions"),
        ({**GOOD, "endpoint": "tcp:1.2.3.4:5"}, "not supported"),
        ({**GOOD, "endpoint": "relative"}, "absolute path"),
    ],
)
def test_names_and_versions_that_are_refused(stated: dict[str, str], problem: str) -> None:
    with pytest.raises(PluginRefused, match=problem):
        read_info(pb.PluginInfo(**stated), "/p/x.sock", STAMP)


def test_without_an_endpoint_the_socket_serves() -> None:
    assert read_info(pb.PluginInfo(**GOOD), "/p/x.sock", STAMP).endpoint == "/p/x.sock"

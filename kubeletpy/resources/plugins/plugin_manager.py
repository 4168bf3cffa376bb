"""Registers plugins whose sockets exist, and deregisters those whose sockets were removed.

One step at a time for each socket, sockets in parallel. Failures are retried after a wait that
doubles, or at once when the socket is recreated or another plugin gives up its name. Source:
docs/reference/behaviour-storage.md, sm1; docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message

from kubeletpy.base.host.inotify import DirectoryWatches
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.base.tasks import Turns, cancel_tasks, wait_within
from kubeletpy.base.text import scrub
from kubeletpy.remote.connection import EndpointError, socket_path
from kubeletpy.resources.plugins import model

if TYPE_CHECKING:
    from kubeletpy.remote.generated import pluginregistration_pb2 as pb


log = logging.getLogger(__name__)

MAX_SOCKETS, MAX_DIRECTORIES, MAX_DEPTH = 512, 256, 8
"""Entries beyond this are ignored, which is logged."""
SETTLED_S = 60.0
"""Interval between readings while nothing seems to happen."""
UNWATCHED_S = 1.0
"""The same where the kernel cannot watch; the kubelet's own period."""
STARTS = 8
"""Steps that begin in one turn of the event loop: a directory may have hundreds of sockets."""


# The sockets in plugins_registry.


class SocketListing(Struct, frozen=True):
    """The sockets and subdirectories of the directory."""

    sockets: dict[str, model.Stamp]
    directories: dict[str, int]
    """Path -> inode."""
    cut: bool = False
    """There are more entries than are read."""


def find_sockets(directory: str) -> SocketListing:
    """Read a directory and its subdirectories.

    Names with a leading dot, symlinks and anything that is not a socket are skipped. Blocks. Raises
    OSError if the directory can't be read.
    """
    sockets: dict[str, model.Stamp] = {}
    directories = {directory: os.lstat(directory).st_ino}
    todo, cut = [(directory, 0)], False
    while todo:
        here, depth = todo.pop()
        try:
            entries = os.scandir(here)
        except OSError:
            if here == directory:
                raise
            continue  # removed meanwhile
        with entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                if stat.S_ISSOCK(found.st_mode) and len(sockets) < MAX_SOCKETS:
                    sockets[entry.path] = (found.st_ino, found.st_mtime_ns)
                elif not stat.S_ISDIR(found.st_mode):
                    cut |= stat.S_ISSOCK(found.st_mode)
                elif len(directories) < MAX_DIRECTORIES and depth < MAX_DEPTH:
                    directories[entry.path] = found.st_ino
                    todo.append((entry.path, depth + 1))
                else:
                    cut = True
    return SocketListing(sockets, directories, cut)


class PluginSockets(Component):
    """Follows the sockets of a directory, without connecting to any.

    The directory is read again after every change and once a minute; the kernel only reports when.
    """

    directory: Path
    listener: Callable[[dict[str, model.Stamp]], None]
    """Called with all current sockets after each change."""

    def __post_init__(self) -> None:
        self._watches = DirectoryWatches()
        self._ends: dict[tuple[str, int], Callable[[], None]] = {}
        self._changed = asyncio.Event()
        self._reported: dict[str, model.Stamp] | None = None
        self._problem = ""

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        log.debug("watching for plugins", extra={"directory": str(self.directory)})
        try:
            while True:
                self._changed.clear()
                all_watched = await self._scan()
                await wait_within(self._changed, SETTLED_S if all_watched else UNWATCHED_S)
        finally:
            self._ends.clear()
            self._watches.close()

    async def _scan(self) -> bool:
        """Read, notify, watch; returns whether every directory is watched."""
        while True:
            try:
                seen = await asyncio.to_thread(self._find_sockets)
            except OSError as error:
                self._log_problem(f"{error.strerror}: {error.filename}")
                return False
            self._log_problem("it has more entries than are read" if seen.cut else "")
            new, failed = self._watch(seen.directories)
            if not new:  # anything created before a watch existed is found by the reading after it
                break
        if seen.sockets != self._reported:
            self._reported = seen.sockets
            self.listener(dict(seen.sockets))
        return not failed

    def _find_sockets(self) -> SocketListing:
        self.directory.mkdir(0o750, parents=True, exist_ok=True)
        return find_sockets(str(self.directory))

    def _watch(self, directories: dict[str, int]) -> tuple[bool, bool]:
        """Watch exactly these directories; return whether a watch is new, or has failed."""
        desired = set(directories.items())
        for key in self._ends.keys() - desired:
            self._ends.pop(key)()
        new = failed = False
        for key in desired - self._ends.keys():
            try:
                self._ends[key] = self._watches.watch(Path(key[0]), self._changed.set)
                new = True
            except OSError as error:
                failed = True
                log.debug("directory not watched", extra={"path": key[0], "why": str(error)})
        return new, failed

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            extra = {"directory": str(self.directory), "why": problem}
            log.warning("not all plugin sockets are seen", extra=extra)
        self._problem = problem


class PluginManager(Component):
    """The plugins of a node. Make it inside a running event loop."""

    directory: Path
    """``{root}/plugins_registry``, which has the sockets."""
    handlers: model.Handlers
    registrations: model.Registrations
    counts: model.PluginCounts

    def __post_init__(self) -> None:
        self._sockets = PluginSockets(self.directory, self.update_sockets)
        self._found: dict[str, model.Stamp] = {}
        self._known: dict[str, model.Known] = {}
        self._steps: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None

    @property
    def plugins(self) -> dict[str, model.Known]:
        """The state of each socket, for diagnostics."""
        return dict(self._known)

    async def run(self) -> None:
        """Keep plugins registered until cancelled; registered plugins stay with their handlers."""
        try:
            await self._sockets.run()
        finally:
            for handle in (self._again, self._soon):
                if handle is not None:
                    handle.cancel()
            await cancel_tasks(self._steps)

    def update_sockets(self, sockets: dict[str, model.Stamp]) -> None:
        """Replace the set of sockets, and act on the difference."""
        self._found = sockets
        self._run_due()

    def _run_due_soon(self) -> None:
        """Start whatever is due, once for all that happens in this turn of the loop."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._run_due)

    def _run_due(self) -> None:
        """Start what is due now, and what is left of it in the next turn."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        loop = asyncio.get_running_loop()
        todo: model.PluginPlan = model.plan(self._found, self._known, loop.time())
        for path in todo.forget:
            del self._known[path]
        for end in todo.deregister[:STARTS]:  # start before those that may need their names
            self._begin(end.info.socket, self._deregister(end))
        left = STARTS - len(todo.deregister)
        for begin in todo.register[: max(left, 0)]:
            self._begin(begin.socket, self._register(begin))
        if len(todo.register) > left:
            self._run_due_soon()
        if self._again is not None:
            self._again.cancel()
        self._again = None if todo.again_at is None else loop.call_at(todo.again_at, self._run_due)
        registered = sorted(path for path, state in self._known.items() if state.registered)
        self.counts.show(sorted(self._found), registered)

    def _begin(self, socket: str, step: Coroutine[Any, Any, None]) -> None:
        self._known[socket] = replace(self._known.get(socket, model.Known()), busy=True)
        task = asyncio.create_task(step, name=f"plugin {socket}")
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)

    async def _deregister(self, step: model.Deregister) -> None:
        info = step.info
        log.info("plugin deregistered", extra={"plugin": info.name, "reason": step.reason})
        try:
            await self.handlers[info.type].deregister(info)
        except model.PluginRefused as error:
            log.warning(
                "plugin could not be deregistered", extra={"plugin": info.name, "why": str(error)}
            )
        except Exception:  # a handler that breaks must not keep the name of its plugin
            log.exception("plugin handler broke", extra={"plugin": info.name})
        now = asyncio.get_running_loop().time()
        self._known = model.name_is_free(self._known, info.name, now)
        self._known[info.socket] = model.Known()
        self._run_due()

    async def _register(self, step: model.Register) -> None:
        socket, name = step.socket, ""
        try:
            async with self.registrations.open(socket, step.stamp) as conversation:
                info = await conversation.info()
                name = info.name
                await self._hand_over(info, conversation)
        except model.PluginRefused as error:
            self._not_registered(step, name, str(error))
        except Exception as error:  # a handler that breaks must not keep its plugin out forever
            log.exception("plugin handler broke", extra={"socket": socket, "plugin": name})
            self._not_registered(step, name, f"internal error: {type(error).__name__}")
        else:
            log.info("plugin registered", extra={"plugin": name, "socket": socket})
            self._known[socket] = model.Known(registered=info, tried=step.stamp, name=name)
        self._run_due_soon()

    async def _hand_over(self, info: model.PluginInfo, conversation: model.Conversation) -> None:
        """Hand a plugin to its handler and notify the plugin. Raises PluginRefused."""
        try:
            handler = self._handler(info)
            handler.validate(info)
            await handler.register(info)
        except model.PluginRefused as error:
            with suppress(model.PluginRefused):  # the reason for the refusal matters more
                await conversation.notify(registered=False, error=str(error))
            raise
        try:
            await conversation.notify(registered=True)
        except model.PluginRefused:
            await handler.deregister(info)
            raise

    def _handler(self, info: model.PluginInfo) -> model.PluginHandler:
        handler = self.handlers.get(info.type)
        if handler is None:
            known = ", ".join(sorted(self.handlers)) or "none"
            raise model.PluginRefused(
                f"no handler registered for plugin type: {info.type} at socket {info.socket} "
                f"(this node has: {known})"
            )
        return handler

    def _not_registered(self, step: model.Register, name: str, problem: str) -> None:
        before = self._known[step.socket]
        now = asyncio.get_running_loop().time()
        after = before.failed(step.stamp, name, problem, now)
        self._known[step.socket] = after
        again = problem == before.problem
        extra = {
            "socket": step.socket,
            "plugin": name,
            "why": problem,
            "again_in": after.retry_at - now,
        }
        log.log(logging.DEBUG if again else logging.WARNING, "plugin not registered", extra=extra)


# The registration service of a plugin, called over its socket.

Answer = TypeVar("Answer", bound=Message)

CONNECT_S = 10.0
INFO_S = 1.0
NOTIFY_S = 5.0
"""How long each step may take. Source: docs/reference/behaviour-storage.md, su."""
MAX_NAME, MAX_VERSIONS, MAX_ERROR = 253, 64, 4096
"""Limits on what is accepted from a plugin, in characters, and on what is sent to it."""
MAX_ANSWER = 32 * 1024
"""Bytes that a plugin may send in answer to one call."""
_SERVICE = "pluginregistration.Registration"
_AGENT = "kubeletpy"


class SocketRegistrations:
    """Connects to registration sockets.

    Each call is a bounded exchange on a connection of its own: the peer at a socket is untrusted,
    and may send frames without end. The messages are loaded when the first socket is found. Source:
    docs/reference/plugin-registration-v1.json.
    """

    def __init__(self) -> None:
        self._turns = Turns()

    @asynccontextmanager
    async def open(self, socket: str, stamp: model.Stamp) -> AsyncIterator[model.Conversation]:
        """Connect to the service behind a socket. Raises PluginRefused."""
        try:
            path = socket_path(socket)
        except EndpointError as error:
            raise model.PluginRefused(str(error)) from None
        yield _PluginConversation(path, socket, stamp, self._turns)


class _PluginConversation(Component):
    path: str
    address: str
    stamp: model.Stamp
    turns: Turns

    async def info(self) -> model.PluginInfo:
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        answer = await self._call("GetInfo", pb.InfoRequest(), pb.PluginInfo, INFO_S)
        return read_info(answer, self.address, self.stamp)

    async def notify(self, *, registered: bool, error: str = "") -> None:
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        status = pb.RegistrationStatus(plugin_registered=registered, error=error[:MAX_ERROR])
        answer = pb.RegistrationStatusResponse
        await self._call("NotifyRegistrationStatus", status, answer, NOTIFY_S)

    async def _call(
        self, method: str, request: Message, answer: type[Answer], within: float
    ) -> Answer:
        """Connect within CONNECT_S and call, for so many seconds more. Raises PluginRefused."""
        from kubeletpy.base.wire.http2 import Bounds
        from kubeletpy.remote.grpc_message import CallFailed
        from kubeletpy.remote.unary_call import UnaryCall

        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(CONNECT_S)

        def greeted() -> None:
            limit.reschedule(loop.time() + within)

        call = UnaryCall(
            self._connected,
            "localhost",
            f"/{_SERVICE}/{method}",
            _AGENT,
            self.turns,
            bounds=Bounds(bytes=MAX_ANSWER),
            greeted=greeted,
        )
        what = f"{method} of plugin at {self.address}"
        try:
            async with limit:
                data = await call.answer(request.SerializeToString(), CONNECT_S + within)
            return answer.FromString(data)
        except TimeoutError:
            if call.connected:
                raise model.PluginRefused(f"{what}: no answer within {within:g}s") from None
            why = f" ({call.problem})" if call.problem else ""
            text = f"connecting to plugin at {self.address}: no answer within {CONNECT_S:g}s{why}"
            raise model.PluginRefused(text) from None
        except CallFailed as error:
            details = scrub(error.details)
            text = f"{what}: rpc error: code = {error.code.reported} desc = {details}"
            raise model.PluginRefused(text) from None
        except DecodeError:
            raise model.PluginRefused(f"{what}: the answer is not what the call returns") from None

    async def _connected(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self.path)
        except BaseException:
            sock.close()
            raise
        return sock


def read_info(answer: pb.PluginInfo, socket: str, stamp: model.Stamp) -> model.PluginInfo:
    """Return a plugin's answer as PluginInfo. Raises PluginRefused if it is unusable."""
    for what, text in (("type", answer.type), ("name", answer.name)):
        if not text:
            raise model.PluginRefused(f"plugin at {socket}: GetInfo gives no {what}")
        if len(text) > MAX_NAME or not text.isprintable():
            raise model.PluginRefused(
                f"plugin at {socket}: the {what} that GetInfo gives is no {what}"
            )
    if len(answer.supported_versions) > MAX_VERSIONS:
        raise model.PluginRefused(
            f"plugin at {socket}: GetInfo gives more than {MAX_VERSIONS} versions"
        )
    try:
        endpoint = socket_path(answer.endpoint) if answer.endpoint else socket
    except EndpointError as error:
        raise model.PluginRefused(f"plugin {answer.name} at {socket}: {error}") from None
    versions = tuple(version[:MAX_NAME] for version in answer.supported_versions)
    return model.PluginInfo(answer.type, answer.name, endpoint, versions, socket, stamp)

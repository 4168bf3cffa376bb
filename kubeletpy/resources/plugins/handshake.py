"""The registration service of a plugin, called over its socket.

Each call is a bounded exchange on a connection of its own: whatever listens at a socket may send
frames without end. The messages are loaded when the first socket is found. Source:
docs/reference/plugin-registration-v1.json; docs/reference/behaviour-storage.md, sm1.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, Message

from kubeletpy.base.text import scrub
from kubeletpy.remote.connection import EndpointError, socket_path
from kubeletpy.resources.plugins.model import PluginInfo, Stamp
from kubeletpy.resources.plugins.protocol import Conversation, PluginRefused

if TYPE_CHECKING:
    from kubeletpy.remote.generated import pluginregistration_pb2 as pb
    from kubeletpy.remote.unary_call import Turns

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
    """Connects to registration sockets."""

    def __init__(self) -> None:
        self._turns: Turns | None = None
        """None before the first socket."""

    @asynccontextmanager
    async def open(self, socket: str, stamp: Stamp) -> AsyncIterator[Conversation]:
        """Talk to one. Raises PluginRefused."""
        from kubeletpy.remote.unary_call import Turns

        try:
            path = socket_path(socket)
        except EndpointError as error:
            raise PluginRefused(str(error)) from None
        self._turns = self._turns or Turns()
        yield _PluginConversation(path, socket, stamp, self._turns)


class _PluginConversation:
    def __init__(self, path: str, socket: str, stamp: Stamp, turns: Turns) -> None:
        self._path = path
        self._socket = socket
        self._stamp = stamp
        self._turns = turns

    async def info(self) -> PluginInfo:
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        said = await self._call("GetInfo", pb.InfoRequest(), pb.PluginInfo, INFO_S)
        return read_info(said, self._socket, self._stamp)

    async def notify(self, *, registered: bool, error: str = "") -> None:
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        status = pb.RegistrationStatus(plugin_registered=registered, error=error[:MAX_ERROR])
        answer = pb.RegistrationStatusResponse
        await self._call("NotifyRegistrationStatus", status, answer, NOTIFY_S)

    async def _call(
        self, method: str, request: Message, answer: type[Answer], within: float
    ) -> Answer:
        """Connect within CONNECT_S and call, for so many seconds more. Raises PluginRefused."""
        from kubeletpy.base.wire.http2_exchange import Bounds
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
            self._turns,
            bounds=Bounds(bytes=MAX_ANSWER),
            greeted=greeted,
        )
        what = f"{method} of plugin at {self._socket}"
        try:
            async with limit:
                data = await call.answer(request.SerializeToString(), CONNECT_S + within)
            return answer.FromString(data)
        except TimeoutError:
            if call.connected:
                raise PluginRefused(f"{what}: no answer within {within:g}s") from None
            why = f" ({call.problem})" if call.problem else ""
            text = f"connecting to plugin at {self._socket}: no answer within {CONNECT_S:g}s{why}"
            raise PluginRefused(text) from None
        except CallFailed as error:
            details = scrub(error.details)
            text = f"{what}: rpc error: code = {error.code.shown} desc = {details}"
            raise PluginRefused(text) from None
        except DecodeError:
            raise PluginRefused(f"{what}: the answer is not what the call returns") from None

    async def _connected(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self._path)
        except BaseException:
            sock.close()
            raise
        return sock


def read_info(said: pb.PluginInfo, socket: str, stamp: Stamp) -> PluginInfo:
    """A plugin's answer, if it is usable. Raises PluginRefused."""
    for what, text in (("type", said.type), ("name", said.name)):
        if not text:
            raise PluginRefused(f"plugin at {socket}: GetInfo gives no {what}")
        if len(text) > MAX_NAME or not text.isprintable():
            raise PluginRefused(f"plugin at {socket}: the {what} that GetInfo gives is no {what}")
    if len(said.supported_versions) > MAX_VERSIONS:
        raise PluginRefused(f"plugin at {socket}: GetInfo gives more than {MAX_VERSIONS} versions")
    try:
        endpoint = socket_path(said.endpoint) if said.endpoint else socket
    except EndpointError as error:
        raise PluginRefused(f"plugin {said.name} at {socket}: {error}") from None
    versions = tuple(version[:MAX_NAME] for version in said.supported_versions)
    return PluginInfo(said.type, said.name, endpoint, versions, socket, stamp)

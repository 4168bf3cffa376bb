"""The registration service of a plugin, called over its socket.

The messages are loaded when the first socket is found. Source:
docs/reference/plugin-registration-v1.json; docs/reference/behaviour-storage.md, sm1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kubeletpy.plugins.model import PluginInfo, Stamp
from kubeletpy.plugins.protocol import Conversation, PluginRefused
from kubeletpy.remote.endpoint import EndpointError, socket_path
from kubeletpy.remote.plugin_calls import PluginCallFailed, PluginCalls

if TYPE_CHECKING:
    from kubeletpy.remote.generated import pluginregistration_pb2 as pb

CONNECT_S = 10.0
INFO_S = 1.0
NOTIFY_S = 5.0
"""How long each step may take. Source: docs/reference/behaviour-storage.md, su."""
MAX_NAME, MAX_VERSIONS, MAX_ERROR = 253, 64, 4096
"""Limits on what is accepted from a plugin, in characters, and on what is sent to it."""


class SocketRegistrations:
    """Connects to registration sockets."""

    @asynccontextmanager
    async def open(self, socket: str, stamp: Stamp) -> AsyncIterator[Conversation]:
        """Connect to one. Raises PluginRefused."""
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        service = pb.DESCRIPTOR.services_by_name["Registration"]
        try:
            calls = PluginCalls(socket, service, f"plugin at {socket}")
        except EndpointError as error:
            raise PluginRefused(str(error)) from None
        try:
            try:
                await calls.connect(CONNECT_S)
            except PluginCallFailed as error:
                raise PluginRefused(str(error)) from None
            yield _Conversation(calls, socket, stamp)
        finally:
            await calls.close()


class _Conversation:
    def __init__(self, calls: PluginCalls, socket: str, stamp: Stamp) -> None:
        self._calls = calls
        self._socket = socket
        self._stamp = stamp

    async def info(self) -> PluginInfo:
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        try:
            said = await self._calls.call("GetInfo", pb.InfoRequest(), pb.PluginInfo, INFO_S)
        except PluginCallFailed as error:
            raise PluginRefused(str(error)) from None
        return read_info(said, self._socket, self._stamp)

    async def notify(self, *, registered: bool, error: str = "") -> None:
        from kubeletpy.remote.generated import pluginregistration_pb2 as pb

        status = pb.RegistrationStatus(plugin_registered=registered, error=error[:MAX_ERROR])
        answer = pb.RegistrationStatusResponse
        try:
            await self._calls.call("NotifyRegistrationStatus", status, answer, NOTIFY_S)
        except PluginCallFailed as failure:
            raise PluginRefused(str(failure)) from None


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

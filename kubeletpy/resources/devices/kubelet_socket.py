"""Where device plugins register: kubelet.sock in the directory of their sockets.

Plugins watch for its creation, and register again when it is recreated. Source:
docs/reference/behaviour-resources.md, rn. Must never remove anything but sockets.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kubeletpy.remote.errors import Code
from kubeletpy.remote.local_server import CallRefused, LocalServer, parsed
from kubeletpy.resources.devices.names import RegistrationRefused

if TYPE_CHECKING:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"
SERVICE = "v1beta1.Registration"
MAX_AT_ONCE = 64
"""Registrations in progress; more are refused, and retried by their plugins."""

Register = Callable[["pb.RegisterRequest"], Awaitable[None]]
"""Raises RegistrationRefused."""


class KubeletSocket:
    """The service Registration."""

    def __init__(self, directory: Path, register: Register) -> None:
        self._directory = directory
        self._register = register
        self._server: LocalServer | None = None

    async def start(self) -> bool:
        """Remove old sockets and listen; return whether the directory was empty before.

        Raises OSError.
        """
        was_empty = await asyncio.to_thread(clear, self._directory)
        server = LocalServer(
            self._directory / SOCKET, MAX_AT_ONCE, {SERVICE: {"Register": self._answer}}
        )
        await server.start()
        self._server = server
        return was_empty

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()

    async def _answer(self, data: bytes) -> bytes:
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        request = parsed(pb.RegisterRequest, data)
        try:
            await self._register(request)
        except RegistrationRefused as error:
            log.warning(
                "device plugin not registered",
                extra={"resource": request.resource_name[:320], "why": str(error)},
            )
            raise CallRefused(Code.UNKNOWN, str(error)) from None
        return b""  # the message Empty


def clear(directory: Path) -> bool:
    """Make the directory and remove the sockets in it; return whether it was empty.

    Blocks. Raises OSError.
    """
    directory.mkdir(0o750, parents=True, exist_ok=True)
    entries = list(directory.iterdir())
    for entry in entries:
        if stat.S_ISSOCK(entry.lstat().st_mode):
            entry.unlink(missing_ok=True)
    return all(entry.name.startswith(".") for entry in entries)


def plugin_socket(directory: Path, endpoint: str) -> str:
    """The path of a plugin's socket. Raises RegistrationRefused: it is not one in the directory."""
    parts = PurePosixPath(endpoint).parts
    if not parts or endpoint.startswith("/") or ".." in parts or endpoint == SOCKET:
        raise RegistrationRefused(
            f"endpoint {endpoint!r} is not the name of a socket in {directory}"
        )
    return str(directory / endpoint)

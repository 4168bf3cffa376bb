"""Plugins of the node and those who use them: CSI drivers, device plugins, DRA drivers.

A handler is chosen by type and knows nothing of sockets and handshakes; who registers knows nothing
of what a plugin is for. Source: docs/reference/behaviour-storage.md, sm1;
docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kubeletpy.plugins.model import PluginInfo, Stamp


class PluginRefused(Exception):
    """A plugin cannot be registered (now); the text goes to the plugin and into the log."""


class PluginHandler(Protocol):
    """Who uses the plugins of one type."""

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this plugin cannot be used."""
        ...

    async def register(self, info: PluginInfo) -> None:
        """Use a plugin from now on; raises PluginRefused, and then must have forgotten it."""
        ...

    async def deregister(self, info: PluginInfo) -> None:
        """Use it no longer, unless another has taken its name meanwhile (``info`` differs)."""
        ...


class Conversation(Protocol):
    """The registration service of one plugin. Each call raises PluginRefused when it fails."""

    async def info(self) -> PluginInfo:
        """What the plugin says of itself."""
        ...

    async def notify(self, *, registered: bool, error: str = "") -> None:
        """Notify it of what became of its registration."""
        ...


class Registrations(Protocol):
    """Where the registration services are: behind sockets, or simulated."""

    def open(self, socket: str, stamp: Stamp) -> AbstractAsyncContextManager[Conversation]:
        """Connect to one. Raises PluginRefused."""
        ...


class PluginCounts(Protocol):
    """Where sockets are counted."""

    def show(self, wanted: Sequence[str], registered: Sequence[str]) -> None:
        """There are these sockets, and these are registered."""
        ...


Handlers = Mapping[str, PluginHandler]
"""By type."""

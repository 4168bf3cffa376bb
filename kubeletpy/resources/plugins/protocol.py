"""Plugins of the node and their handlers: CSI drivers, device plugins, DRA drivers.

A handler is chosen by type and is independent of sockets and handshakes; the plugin manager has
nothing about what a plugin is for. Source: docs/reference/behaviour-storage.md, sm1;
docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kubeletpy.resources.plugins.model import PluginInfo, Stamp


class PluginRefused(Exception):
    """A plugin cannot be registered (now); the text is sent to the plugin and logged."""


class PluginHandler(Protocol):
    """Handles the plugins of one type."""

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused if this plugin cannot be used."""
        ...

    async def register(self, info: PluginInfo) -> None:
        """Start using a plugin. Raises PluginRefused, and must then have forgotten the plugin."""
        ...

    async def deregister(self, info: PluginInfo) -> None:
        """Stop using it, unless another has taken its name meanwhile (``info`` differs)."""
        ...


class Conversation(Protocol):
    """The registration service of one plugin. Each call raises PluginRefused when it fails."""

    async def info(self) -> PluginInfo:
        """Query the plugin's report about itself."""
        ...

    async def notify(self, *, registered: bool, error: str = "") -> None:
        """Notify it of the result of its registration."""
        ...


class Registrations(Protocol):
    """Where the registration services are: behind sockets, or simulated."""

    def open(self, socket: str, stamp: Stamp) -> AbstractAsyncContextManager[Conversation]:
        """Connect to one. Raises PluginRefused."""
        ...


class PluginCounts(Protocol):
    """Receives the socket counts."""

    def show(self, wanted: Sequence[str], registered: Sequence[str]) -> None:
        """These sockets exist, and these are registered."""
        ...


Handlers = Mapping[str, PluginHandler]
"""Handlers by plugin type."""

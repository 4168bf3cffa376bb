"""The CSI drivers that are registered on this node, and the connection to each.

Loads no gRPC before there is a driver. Source: docs/reference/behaviour-storage.md, sm1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.resources.plugins.model import PluginInfo
from kubeletpy.volumes.csi.versions import Version

if TYPE_CHECKING:
    from kubeletpy.remote.plugin_calls import Calls
    from kubeletpy.volumes.csi.client import NodeClient


Connect = Callable[[str, str], "NodeClient"]
"""Makes the client of a driver from its name and endpoint. Raises ValueError: invalid endpoint."""
OpenCalls = Callable[[str, str], "Calls"]
"""How drivers (name, endpoint) are called other than over their sockets."""


def connect_by(metrics: CsiMetrics, calls: OpenCalls | None = None) -> Connect:
    """Returns the client factory; ``calls`` None: clients use Unix sockets."""

    def connect(driver: str, endpoint: str) -> NodeClient:
        from kubeletpy.volumes.csi.client import NodeClient

        return NodeClient(driver, endpoint, metrics, calls(driver, endpoint) if calls else None)

    return connect


class RegisteredDriver(Struct, frozen=True):
    """A registered driver."""

    info: PluginInfo
    version: Version
    client: NodeClient


class CsiDrivers:
    """The registered drivers, by name. Listeners are notified when one comes or goes."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._drivers: dict[str, RegisteredDriver] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(name)`` called when a driver came or went."""
        self._listeners.append(listener)

    def get(self, name: str) -> RegisteredDriver | None:
        """A driver, if it is registered."""
        return self._drivers.get(name)

    @property
    def names(self) -> list[str]:
        """All registered drivers."""
        return sorted(self._drivers)

    def add(self, info: PluginInfo, version: Version) -> RegisteredDriver:
        """Add a driver, replacing one of the same name. Raises ValueError: invalid endpoint."""
        made = RegisteredDriver(info, version, self._connect(info.name, info.endpoint))
        before = self._drivers.get(info.name)
        self._drivers[info.name] = made
        if before is not None:
            self._let_go(before)
        return made

    def notify(self, name: str) -> None:
        """Notify the listeners: a driver is ready to use, or not any more."""
        for listener in self._listeners:
            listener(name)

    def remove(self, info: PluginInfo) -> bool:
        """Remove a driver; False when another has its name."""
        found = self._drivers.get(info.name)
        if found is None or found.info != info:
            return False
        del self._drivers[info.name]
        self._let_go(found)
        self.notify(info.name)
        return True

    async def close(self) -> None:
        """Close all connections."""
        for driver in self._drivers.values():
            self._let_go(driver)
        self._drivers.clear()
        await run_together(*self._closing)

    def _let_go(self, driver: RegisteredDriver) -> None:
        task = asyncio.create_task(driver.client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

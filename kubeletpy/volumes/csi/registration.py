"""CSI drivers as plugins of the node: taken in, reported to the cluster, let go.

Source: docs/reference/behaviour-storage.md, sm1, sm2, sl.
"""

from __future__ import annotations

import asyncio
import logging
import re

from kubeletpy.plugins.model import PluginInfo
from kubeletpy.plugins.protocol import PluginRefused
from kubeletpy.volumes.csi.driver_objects import DriverObjects
from kubeletpy.volumes.csi.drivers import Drivers
from kubeletpy.volumes.csi.node_object import DriverOnNode
from kubeletpy.volumes.csi.node_writer import CsiNodeWriter, NodeNotUpdated
from kubeletpy.volumes.csi.versions import Version, highest_supported
from kubeletpy.volumes.operation import OperationFailed

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?", re.ASCII)
"""What the API takes for a driver's name; it becomes a directory's."""


class CsiDriverHandler:
    """The handler of type CSIPlugin."""

    def __init__(self, drivers: Drivers, objects: DriverObjects, writer: CsiNodeWriter) -> None:
        self._drivers = drivers
        self._objects = objects
        self._writer = writer
        self._renewing: dict[str, asyncio.Task[None]] = {}
        objects.on_change(self._retime)

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this driver cannot be used."""
        self._version(info)

    async def register(self, info: PluginInfo) -> None:
        """Use a driver from now on; raises PluginRefused."""
        try:
            driver = self._drivers.add(info, self._version(info))
        except ValueError as error:
            raise PluginRefused(f"driver {info.name}: {error}") from None
        try:
            await self._writer.install(await self._on_node(info))
        except (OperationFailed, NodeNotUpdated) as error:
            self._drivers.remove(info)
            if isinstance(error, OperationFailed):
                await self._writer.uninstall(info.name)
            raise PluginRefused(f"driver {info.name}: {error}") from None
        except BaseException:
            self._drivers.remove(info)
            raise
        if self._drivers.get(info.name) is driver:
            self._drivers.tell(info.name)
            self._retime(info.name)

    async def deregister(self, info: PluginInfo) -> None:
        """Use a driver no longer, unless another has its name."""
        if self._drivers.remove(info):
            self._retime(info.name)
            await self._writer.uninstall(info.name)

    async def renew(self, name: str) -> None:
        """Ask a driver anew how many volumes fit, and report it. Raises PluginRefused."""
        driver = self._drivers.get(name)
        if driver is None:
            raise PluginRefused(f"driver {name} is not registered")
        try:
            told = await self._on_node(driver.info)
            if self._drivers.get(name) is driver:
                await self._writer.install(told)
        except (OperationFailed, NodeNotUpdated) as error:
            raise PluginRefused(f"driver {name}: {error}") from None

    def close(self) -> None:
        """End what runs by the clock."""
        for task in self._renewing.values():
            task.cancel()
        self._renewing.clear()

    async def _on_node(self, info: PluginInfo) -> DriverOnNode:
        driver = self._drivers.get(info.name)
        if driver is None or driver.info != info:
            raise PluginRefused(f"driver {info.name} has gone away")
        told = await driver.client.info()
        if told.odd:
            log.warning(
                "a CSI driver's answer is odd", extra={"driver": info.name, "what": told.odd}
            )
        return DriverOnNode(info.name, told.node_id, told.max_volumes, told.topology)

    def _version(self, info: PluginInfo) -> Version:
        if _NAME.fullmatch(info.name) is None:
            raise PluginRefused(f"{info.name!r} cannot be the name of a CSI driver")
        version = highest_supported(info.versions)
        if version is None:
            told = ", ".join(info.versions) or "none"
            raise PluginRefused(
                f"driver {info.name}: none of its versions is supported (1.x): {told}"
            )
        other = self._drivers.get(info.name)
        if other is not None and other.info != info and other.version >= version:
            has = ".".join(map(str, other.version))
            raise PluginRefused(
                f"driver {info.name}: another of that name is registered with version {has} "
                f"(socket {other.info.socket})"
            )
        return version

    def _retime(self, name: str) -> None:
        """Begin, change or end the asking by the clock (nodeAllocatableUpdatePeriodSeconds)."""
        for each in [name] if name else self._drivers.names:
            task = self._renewing.pop(each, None)
            if task is not None:
                task.cancel()
            found = self._objects.get(each)
            period = found.allocatable_period if found is not None else None
            if period is not None and self._drivers.get(each) is not None:
                self._renewing[each] = asyncio.create_task(
                    self._renew_each(each, period), name=f"csi allocatable {each}"
                )

    async def _renew_each(self, name: str, period: float) -> None:
        while True:
            await asyncio.sleep(period)
            try:
                await self.renew(name)
            except PluginRefused as error:
                log.warning(
                    "number of volumes not renewed", extra={"driver": name, "why": str(error)}
                )

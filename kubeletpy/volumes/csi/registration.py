"""CSI drivers as plugins of the node: registered, reported to the cluster, deregistered.

Source: docs/reference/behaviour-storage.md, sm1, sm2, sl.
"""

from __future__ import annotations

import asyncio
import logging
import re

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.csi.driver_objects import DriverObjects
from kubeletpy.volumes.csi.drivers import CsiDrivers
from kubeletpy.volumes.csi.node_object import DriverOnNode
from kubeletpy.volumes.csi.node_writer import CsiNodeWriter, NodeNotUpdated
from kubeletpy.volumes.csi.versions import Version, highest_supported

log = logging.getLogger(__name__)

ASK_AGAIN_S = 10.0
"""Seconds between two queries for the volume limit: the minimum that a CSIDriver may request."""
_NAME = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?", re.ASCII)
"""Driver names that the API accepts; a name becomes a directory name."""


class CsiDriverHandler:
    """The plugin handler of type CSIPlugin."""

    def __init__(self, drivers: CsiDrivers, objects: DriverObjects, writer: CsiNodeWriter) -> None:
        self._drivers = drivers
        self._objects = objects
        self._writer = writer
        self._renewing: dict[str, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._asked_at: dict[str, float] = {}
        objects.on_change(self._retime)

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused if this driver cannot be used."""
        self._version(info)

    async def register(self, info: PluginInfo) -> None:
        """Start using a driver. Raises PluginRefused."""
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
            self._drivers.notify(info.name)
            self._retime(info.name)

    async def deregister(self, info: PluginInfo) -> None:
        """Stop using a driver, unless another has its name."""
        if self._drivers.remove(info):
            self._asked_at.pop(info.name, None)
            self._retime(info.name)
            await self._writer.uninstall(info.name)

    async def renew(self, name: str) -> None:
        """Query a driver's volume limit again and report it. Raises PluginRefused."""
        driver = self._drivers.get(name)
        if driver is None:
            raise PluginRefused(f"driver {name} is not registered")
        try:
            found = await self._on_node(driver.info)
            if self._drivers.get(name) is driver:
                await self._writer.install(found)
        except (OperationFailed, NodeNotUpdated) as error:
            raise PluginRefused(f"driver {name}: {error}") from None

    def full(self, name: str) -> bool:
        """A driver attaches no more volumes here: query its volume limit again, rate-limited.

        Returns whether it reports a limit periodically (nodeAllocatableUpdatePeriodSeconds).
        """
        rules = self._objects.get(name)
        if rules is None or rules.allocatable_period is None or self._drivers.get(name) is None:
            return False
        now = asyncio.get_running_loop().time()
        if now >= self._asked_at.get(name, float("-inf")) + ASK_AGAIN_S:
            self._asked_at[name] = now
            task = asyncio.create_task(self._renew_now(name), name=f"csi limit of {name}")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        return True

    async def close(self) -> None:
        """Cancel periodic and pending queries."""
        tasks = (*self._renewing.values(), *self._asking)
        self._renewing.clear()
        await cancel_tasks(tasks)

    async def _on_node(self, info: PluginInfo) -> DriverOnNode:
        driver = self._drivers.get(info.name)
        if driver is None or driver.info != info:
            raise PluginRefused(f"driver {info.name} has disconnected")
        answer = await driver.client.info()
        if answer.odd:
            log.warning(
                "unexpected answer of a CSI driver", extra={"driver": info.name, "what": answer.odd}
            )
        return DriverOnNode(info.name, answer.node_id, answer.max_volumes, answer.topology)

    def _version(self, info: PluginInfo) -> Version:
        if _NAME.fullmatch(info.name) is None:
            raise PluginRefused(f"{info.name!r} cannot be the name of a CSI driver")
        version = highest_supported(info.versions)
        if version is None:
            offered = ", ".join(info.versions) or "none"
            raise PluginRefused(
                f"driver {info.name}: none of its versions is supported (1.x): {offered}"
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
        """Start, change or stop the periodic queries (nodeAllocatableUpdatePeriodSeconds)."""
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
            await self._renew_now(name)

    async def _renew_now(self, name: str) -> None:
        try:
            await self.renew(name)
        except PluginRefused as error:
            log.warning("number of volumes not renewed", extra={"driver": name, "why": str(error)})

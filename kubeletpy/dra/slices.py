"""Deletes the ResourceSlices of drivers that were removed: their devices must not be allocated.

Drivers write their slices themselves. Source: docs/reference/behaviour-resources.md, rv.
"""

from __future__ import annotations

import asyncio
import logging

from kubeletpy.dra.drivers import DraDrivers
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import RESOURCESLICES, KubeApi
from kubeletpy.tasks import cancel_tasks

log = logging.getLogger(__name__)

GONE_S = 30.0
"""How long a driver may be away. Source: docs/reference/constants.csv:
DRA reconcile / slice wipe delay."""
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 300.0
_ALL = ""


class SliceCleaner:
    """The slices of one node."""

    def __init__(self, kube_api: KubeApi, node_name: str, drivers: DraDrivers) -> None:
        self._api = kube_api
        self._node_name = node_name
        self._drivers = drivers
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._running = False
        drivers.on_change(self._changed)

    async def run(self) -> None:
        """Delete all of the node, then those of each driver that goes away; until cancelled."""
        self._running = True
        try:
            # including those of drivers that register meanwhile: they write theirs again
            await self._delete(_ALL)
            await asyncio.Event().wait()
        finally:
            self._running = False
            await cancel_tasks(self._pending.values())

    def _changed(self, driver: str) -> None:
        pending = self._pending.get(driver)
        if self._drivers.connected(driver):
            if pending is not None:
                pending.cancel()
                del self._pending[driver]
        elif pending is None and self._running:
            task = asyncio.create_task(self._later(driver), name=f"slices of {driver}")
            self._pending[driver] = task

    async def _later(self, driver: str) -> None:
        await asyncio.sleep(GONE_S)
        await self._delete(driver)
        self._pending.pop(driver, None)

    async def _delete(self, driver: str) -> None:
        selector, wait = f"spec.nodeName={self._node_name}", FIRST_RETRY_S
        if driver:
            selector += f",spec.driver={driver}"
        while True:
            try:
                await self._api.delete_collection(RESOURCESLICES, field_selector=selector)
            except ApiError as error:
                if error.code == 404:
                    return  # this API has no slices
                log.log(
                    logging.WARNING if wait == FIRST_RETRY_S else logging.DEBUG,
                    "resource slices not deleted",
                    extra={"driver": driver or "all", "why": str(error), "again_in": wait},
                )
                await asyncio.sleep(wait)
                wait = min(wait * 2, LAST_RETRY_S)
            else:
                # at each start those that an earlier agent may have left
                level = logging.INFO if driver else logging.DEBUG
                log.log(level, "resource slices deleted", extra={"driver": driver or "all"})
                return

"""Deletes the ResourceSlices of drivers that were removed: their devices must not be allocated.

Drivers write their slices themselves, and name the Node object of their start as owner. Slices of
a Node that was created anew get its uid here: the cluster would collect them as garbage. Source:
docs/reference/behaviour-resources.md, rv.
"""

from __future__ import annotations

import asyncio
import logging

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import RESOURCESLICES, KubeApi, PatchType
from kubeletpy.resources.dra.drivers import DraDrivers

log = logging.getLogger(__name__)

REMOVED_S = 30.0
"""How long a driver may be disconnected. Source: docs/reference/constants.csv:
DRA reconcile / slice wipe delay."""
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 300.0
ADOPTIONS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds before each pass over the slices of a Node that was created anew: a driver that notices
the removal of its slices writes them with the former owner again."""
_ALL = ""


class SliceCleaner:
    """Cleans up the slices of one node."""

    def __init__(self, kube_api: KubeApi, node_name: str, drivers: DraDrivers) -> None:
        self._api = kube_api
        self._node_name = node_name
        self._drivers = drivers
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._running = False
        self._adopting: asyncio.Task[None] | None = None
        drivers.on_change(self._changed)

    async def run(self) -> None:
        """Delete all slices of the node, then those of each removed driver, until cancelled."""
        self._running = True
        try:
            # including those of drivers that register meanwhile: they write theirs again
            await self._delete(_ALL)
            await asyncio.Event().wait()
        finally:
            self._running = False
            await cancel_tasks((*self._pending.values(), self._adopting))

    def node_replaced(self, uid: str) -> None:
        """Make a Node object that was created anew, with this uid, the owner of its slices."""
        if self._adopting is not None:
            self._adopting.cancel()
            self._adopting = None
        if self._running:
            self._adopting = asyncio.create_task(self._adopt(uid), name="slices of a new Node")

    async def _adopt(self, uid: str) -> None:
        drivers: set[str] = set()
        for wait in ADOPTIONS_S:
            await asyncio.sleep(wait)
            try:
                drivers = await self._adopt_once(uid)
            except ApiError as error:
                log.debug("resource slices not adopted", extra={"why": str(error)})
        if drivers:
            log.warning(
                "drivers still write resource slices for a Node that was deleted: restart them",
                extra={"drivers": sorted(drivers)},
            )

    async def _adopt_once(self, uid: str) -> set[str]:
        """Correct the owner of each slice; returns the drivers of those that had a former one."""
        selector = f"spec.nodeName={self._node_name}"
        listed = await self._api.list(RESOURCESLICES, field_selector=selector)
        found: set[str] = set()
        for each in listed.get("items") or ():
            owners = each["metadata"].get("ownerReferences") or []
            new = [{**owner, "uid": uid} if owner["kind"] == "Node" else owner for owner in owners]
            if new != owners:
                found.add(each["spec"]["driver"])
                patch = {"metadata": {"ownerReferences": new}}
                await self._api.patch(
                    RESOURCESLICES, each["metadata"]["name"], patch, patch_type=PatchType.MERGE
                )
        return found

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
        await asyncio.sleep(REMOVED_S)
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

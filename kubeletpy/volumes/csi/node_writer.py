"""Reports a node's CSI drivers to the cluster, and that it is ready for them.

One write at a time, each with the whole state, so that whatever failed before is part of the next
one; a failed write of a driver's removal is repeated. While drivers are registered, their entries
are checked every 40 to 50 s, and written again if somebody has removed them.

Source: docs/reference/behaviour-storage.md, sm2, sm3.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import CSINODES, NODES, KubeApi
from kubeletpy.kubeapi.transport import RepairPace, jittered_waits
from kubeletpy.volumes.csi.node_object import (
    NOT_INITIALIZED,
    DriverOnNode,
    NodeObjectConflict,
    changed_csi_node,
    new_csi_node,
    node_patch,
    owned_by,
)

log = logging.getLogger(__name__)

WAITS_S = (0.01, 0.05, 0.25)
"""Before each retry of one write, plus a jitter of up to a tenth."""
CHECK_S = 40.0
"""Between two checks of the CSINode, plus a jitter of up to a quarter."""
LONGEST_REPAIR_S = 600.0
"""Between two repairs of a CSINode that somebody removes each time."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 30.0
"""Between writes that nobody waits for."""


class NodeNotUpdated(Exception):
    """A driver could not be written to the cluster; the text contains the reason."""


class CsiNodeWriter:
    """The CSINode object, and the drivers' part of the Node object."""

    def __init__(
        self, node_name: str, kube_api: KubeApi | None, *, rng: random.Random | None = None
    ) -> None:
        """``kube_api`` None: standalone, nothing is reported."""
        self._name = node_name
        self._api = kube_api
        self._rng = rng or random.Random()
        self._present: dict[str, DriverOnNode] = {}
        self._gone: set[str] = set()
        self._writing = asyncio.Lock()
        self._untold = asyncio.Event()
        self._ready = kube_api is None
        self._soon = asyncio.Event()
        self._when_ready: Callable[[], None] = lambda: None
        self._node: Mapping[str, Any] | None = None
        self._pace = RepairPace(CHECK_S, LONGEST_REPAIR_S)

    @property
    def problem(self) -> str:
        """Why the node is not ready for volumes; empty: it is."""
        return "" if self._ready else NOT_INITIALIZED

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called once the CSINode exists."""
        self._when_ready = listener

    def node_answered(self) -> None:
        """The API has the node: pending writes for it need not wait longer."""
        if not self._ready:
            self._soon.set()

    def node_shown(self, node: Mapping[str, Any] | None) -> None:
        """The API shows this Node object; None: it has none."""
        self._node = node

    def node_replaced(self) -> None:
        """The Node object was created anew: all of this is to be written for the new one."""
        self._untold.set()
        self._soon.set()

    async def run(self) -> None:
        """Make the CSINode exist, retry failed writes and undo removals, until cancelled."""
        self._untold.set()
        while True:
            await self._until_due()
            waits = jittered_waits(_FIRST_WAIT_S, _LONGEST_WAIT_S, self._rng)
            while self._untold.is_set():
                try:
                    await self._write()
                except (ApiError, NodeObjectConflict) as error:
                    log.debug("CSINode not written", extra={"why": str(error)})
                    await self._wait(next(waits))

    async def _until_due(self) -> None:
        while not self._untold.is_set():
            try:
                async with asyncio.timeout(CHECK_S * self._rng.uniform(1, 1.25)):
                    await self._untold.wait()
            except TimeoutError:
                await self._check()

    async def _check(self) -> None:
        """Have what somebody has removed written again, but not against a program that insists."""
        now = asyncio.get_running_loop().time()
        if self._api is None or not self._present or not self._pace.due(now):
            return
        async with self._writing:
            try:
                removed = await self._removed(self._api)
            except ApiError as error:
                log.debug("CSINode not checked", extra={"why": str(error)})
                return
        if removed:
            log.warning(
                "CSI drivers of this node were removed from the API: they are written again",
                extra={"removed": removed, "drivers": sorted(self._present)},
            )
            self._pace.repaired(now)
            self._untold.set()

    async def _removed(self, api: KubeApi) -> str:
        """The part of the drivers that the API lacks; empty: none. Raises ApiError."""
        node = self._node
        if node is not None and node_patch(node, self._present, self._gone) is not None:
            return "annotation or labels of the Node"
        try:
            found = await api.get(CSINODES, self._name)
        except NotFound:
            return "the CSINode"
        uid = ((node or {}).get("metadata") or {}).get("uid") or ""
        if uid and not owned_by(found, uid):
            return "the CSINode of this Node object"
        changed = changed_csi_node(found, self._present, self._gone)
        return "" if changed is None else "entries of the CSINode"

    async def _wait(self, seconds: float) -> None:
        self._soon.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._soon.wait()
        except TimeoutError:
            return

    async def install(self, driver: DriverOnNode) -> None:
        """Report a driver. Raises NodeNotUpdated; then it is as if it had never been added."""
        before = self._present.get(driver.name)
        self._present[driver.name] = driver
        self._gone.discard(driver.name)
        try:
            await self._tries(driver.name)
        except BaseException as error:
            # the next write reverts what may have been written
            if self._present.get(driver.name) is driver:
                self._take_away(driver.name)
                if before is not None:
                    self._gone.discard(driver.name)
                    self._present[driver.name] = before
            if isinstance(error, ApiError | NodeObjectConflict):
                raise NodeNotUpdated(f"driver {driver.name}: {error}") from None
            raise

    async def uninstall(self, name: str) -> None:
        """Report that a driver was removed; a report that fails is repeated later."""
        self._take_away(name)
        try:
            await self._tries()
        except (ApiError, NodeObjectConflict) as error:
            extra = {"driver": name, "why": str(error)}
            log.warning("the end of a CSI driver could not be reported yet", extra=extra)

    def _take_away(self, name: str) -> None:
        self._present.pop(name, None)
        self._gone.add(name)
        self._untold.set()

    async def _tries(self, subject: str = "") -> None:
        for wait in (*WAITS_S, None):
            try:
                await self._write(subject)
                return
            except ApiError:
                if wait is None:
                    raise
                await asyncio.sleep(wait * self._rng.uniform(1, 1.1))

    async def _write(self, subject: str = "") -> None:
        """Update both objects. Raises ApiError, NodeObjectConflict."""
        if self._api is None:
            self._untold.clear()
            return
        async with self._writing:
            self._untold.clear()
            gone = set(self._gone)
            try:
                await self._write_objects(self._api, subject)
            except BaseException:
                self._untold.set()
                raise
            self._gone -= gone
        if not self._ready:
            self._ready = True
            self._when_ready()

    async def _write_objects(self, api: KubeApi, subject: str) -> None:
        node = await api.get(NODES, self._name)
        patch = node_patch(node, self._present, self._gone, subject)
        if patch is not None:
            await api.patch(NODES, self._name, patch, subresource="status")
        uid = (node.get("metadata") or {}).get("uid") or ""
        try:
            found = await api.get(CSINODES, self._name)
        except NotFound:
            found = None
        if found is not None and not owned_by(found, uid):
            # of a Node object that was deleted, which nobody has collected yet
            await api.delete(CSINODES, self._name, uid=(found.get("metadata") or {}).get("uid"))
            found = None
        if found is None:
            await api.create(CSINODES, new_csi_node(self._name, uid, self._present))
            return
        changed = changed_csi_node(found, self._present, self._gone)
        if changed is not None:
            await api.update(CSINODES, changed)

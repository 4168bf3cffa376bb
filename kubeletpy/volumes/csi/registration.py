"""CSI drivers as plugins of the node: registered, reported to the cluster, deregistered.

Source: docs/reference/behaviour-storage.md, sl, sm1, sm2, sm3, sr2.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks, run_together, wait_within
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import CSINODES, NODES, KubeApi, PatchType
from kubeletpy.kubeapi.transport import RepairPace, jittered_waits
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused
from kubeletpy.volumes.claims.model import OperationFailed
from kubeletpy.volumes.csi import objects as csi_objects
from kubeletpy.volumes.csi.host import CsiDrivers, DriverObjects

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


class CsiNodeWriter(Component):
    """Writes the CSINode object, and the drivers' part of the Node object.

    One write at a time, each with the complete state, so that the next one includes whatever failed
    before. A failed write of a driver's removal is repeated. While drivers are registered, their
    entries are checked every 40 to 50 s, and written again if somebody has removed them.
    """

    node_name: str
    api: KubeApi | None
    """None: standalone, nothing is reported."""
    rng: random.Random

    def __post_init__(self) -> None:
        self._present: dict[str, csi_objects.DriverOnNode] = {}
        self._absent: set[str] = set()
        self._writing = asyncio.Lock()
        self._pending = asyncio.Event()
        self._ready = self.api is None
        self._soon = asyncio.Event()
        self._when_ready: Callable[[], None] = lambda: None
        self._node: Mapping[str, Any] | None = None
        self._pace = RepairPace(CHECK_S, LONGEST_REPAIR_S)

    @property
    def problem(self) -> str:
        """Why the node is not ready for volumes; empty: it is."""
        return "" if self._ready else csi_objects.NOT_INITIALIZED

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called once the CSINode exists."""
        self._when_ready = listener

    def node_answered(self) -> None:
        """Cut the wait of pending writes short: the API has the node."""
        if not self._ready:
            self._soon.set()

    def node_reported(self, node: Mapping[str, Any] | None) -> None:
        """Store the Node object that the API shows; None: it has none."""
        self._node = node

    def node_replaced(self) -> None:
        """Write everything again: the Node object was created anew."""
        self._pending.set()
        self._soon.set()

    async def run(self) -> None:
        """Make the CSINode exist, retry failed writes and undo removals, until canceled."""
        self._pending.set()
        while True:
            await self._until_due()
            waits = jittered_waits(_FIRST_WAIT_S, _LONGEST_WAIT_S, self.rng)
            while self._pending.is_set():
                try:
                    await self._write()
                except (ApiError, csi_objects.NodeObjectConflict) as error:
                    log.debug("CSINode not written", extra={"why": str(error)})
                    await self._wait(next(waits))

    async def _until_due(self) -> None:
        while not self._pending.is_set():
            if not await wait_within(self._pending, CHECK_S * self.rng.uniform(1, 1.25)):
                await self._check()

    async def _check(self) -> None:
        """Have what somebody has removed written again, but not against a program that insists."""
        now = asyncio.get_running_loop().time()
        if self.api is None or not self._present or not self._pace.due(now):
            return
        async with self._writing:
            try:
                removed = await self._removed(self.api)
            except ApiError as error:
                log.debug("CSINode not checked", extra={"why": str(error)})
                return
        if removed:
            log.warning(
                "CSI drivers of this node were removed from the API: they are written again",
                extra={"removed": removed, "drivers": sorted(self._present)},
            )
            self._pace.repaired(now)
            self._pending.set()

    async def _removed(self, api: KubeApi) -> str:
        """The part of the drivers that the API lacks; empty: none. Raises ApiError."""
        node = self._node
        if (
            node is not None
            and csi_objects.node_patch(node, self._present, self._absent) is not None
        ):
            return "annotation or labels of the Node"
        try:
            found = await api.get(CSINODES, self.node_name)
        except NotFound:
            return "the CSINode"
        uid = ((node or {}).get("metadata") or {}).get("uid") or ""
        if uid and not csi_objects.owned_by(found, uid):
            return "the CSINode of this Node object"
        changed = csi_objects.changed_csi_node(found, self._present, self._absent)
        return "" if changed is None else "entries of the CSINode"

    async def _wait(self, seconds: float) -> None:
        self._soon.clear()
        await wait_within(self._soon, seconds)

    async def install(self, driver: csi_objects.DriverOnNode) -> None:
        """Report a driver. Raises NodeNotUpdated; then it is as if it had never been added."""
        before = self._present.get(driver.name)
        self._present[driver.name] = driver
        self._absent.discard(driver.name)
        try:
            await self._write_with_retries(driver.name)
        except BaseException as error:
            # the next write reverts what may have been written
            if self._present.get(driver.name) is driver:
                self._mark_absent(driver.name)
                if before is not None:
                    self._absent.discard(driver.name)
                    self._present[driver.name] = before
            if isinstance(error, ApiError | csi_objects.NodeObjectConflict):
                raise NodeNotUpdated(f"driver {driver.name}: {error}") from None
            raise

    async def uninstall(self, name: str) -> None:
        """Report that a driver was removed; a report that fails is repeated later."""
        self._mark_absent(name)
        try:
            await self._write_with_retries()
        except (ApiError, csi_objects.NodeObjectConflict) as error:
            extra = {"driver": name, "why": str(error)}
            log.warning("the end of a CSI driver could not be reported yet", extra=extra)

    def _mark_absent(self, name: str) -> None:
        self._present.pop(name, None)
        self._absent.add(name)
        self._pending.set()

    async def _write_with_retries(self, subject: str = "") -> None:
        for wait in (*WAITS_S, None):
            try:
                await self._write(subject)
                return
            except ApiError:
                if wait is None:
                    raise
                await asyncio.sleep(wait * self.rng.uniform(1, 1.1))

    async def _write(self, subject: str = "") -> None:
        """Update both objects. Raises ApiError, NodeObjectConflict."""
        if self.api is None:
            self._pending.clear()
            return
        async with self._writing:
            self._pending.clear()
            removed = set(self._absent)
            try:
                await self._write_objects(self.api, subject)
            except BaseException:
                self._pending.set()
                raise
            self._absent -= removed
        if not self._ready:
            self._ready = True
            self._when_ready()

    async def _write_objects(self, api: KubeApi, subject: str) -> None:
        node = await api.get(NODES, self.node_name)
        patch = csi_objects.node_patch(node, self._present, self._absent, subject)
        if patch is not None:
            await api.patch(NODES, self.node_name, patch, subresource="status")
        uid = (node.get("metadata") or {}).get("uid") or ""
        try:
            found = await api.get(CSINODES, self.node_name)
        except NotFound:
            found = None
        if found is not None and not csi_objects.owned_by(found, uid):
            # of a Node object that was deleted, which nobody has collected yet
            await api.delete(CSINODES, self.node_name, uid=(found.get("metadata") or {}).get("uid"))
            found = None
        if found is None:
            await api.create(CSINODES, csi_objects.new_csi_node(self.node_name, uid, self._present))
            return
        changed = csi_objects.changed_csi_node(found, self._present, self._absent)
        if changed is not None:
            await api.update(CSINODES, changed)


REQUERY_S = 10.0
"""Seconds between two queries for the volume limit: the minimum that a CSIDriver may request."""
_NAME = re.compile(r"[a-zA-Z0-9](?:[-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?", re.ASCII)
"""Driver names that the API accepts; a name becomes a directory name."""


class CsiDriverHandler(Component):
    """The plugin handler of type CSIPlugin."""

    drivers: CsiDrivers
    objects: DriverObjects
    writer: CsiNodeWriter

    def __post_init__(self) -> None:
        self._renewing: dict[str, asyncio.Task[None]] = {}
        self._queries: set[asyncio.Task[None]] = set()
        self._requested_at: dict[str, float] = {}
        self.objects.on_change(self._retime)

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused if this driver cannot be used."""
        self._version(info)

    async def register(self, info: PluginInfo) -> None:
        """Start using a driver. Raises PluginRefused."""
        try:
            driver = self.drivers.add(info, self._version(info))
        except ValueError as error:
            raise PluginRefused(f"driver {info.name}: {error}") from None
        try:
            await self.writer.install(await self._on_node(info))
        except (OperationFailed, NodeNotUpdated) as error:
            self.drivers.remove(info)
            if isinstance(error, OperationFailed):
                await self.writer.uninstall(info.name)
            raise PluginRefused(f"driver {info.name}: {error}") from None
        except BaseException:
            self.drivers.remove(info)
            raise
        if self.drivers.get(info.name) is driver:
            self.drivers.notify(info.name)
            self._retime(info.name)

    async def deregister(self, info: PluginInfo) -> None:
        """Stop using a driver, unless another has its name."""
        if self.drivers.remove(info):
            self._requested_at.pop(info.name, None)
            self._retime(info.name)
            await self.writer.uninstall(info.name)

    async def renew(self, name: str) -> None:
        """Query a driver's volume limit again and report it. Raises PluginRefused."""
        driver = self.drivers.get(name)
        if driver is None:
            raise PluginRefused(f"driver {name} is not registered")
        try:
            found = await self._on_node(driver.info)
            if self.drivers.get(name) is driver:
                await self.writer.install(found)
        except (OperationFailed, NodeNotUpdated) as error:
            raise PluginRefused(f"driver {name}: {error}") from None

    def full(self, name: str) -> bool:
        """A driver attaches no more volumes here: query its volume limit again, rate-limited.

        Returns whether it reports a limit periodically (nodeAllocatableUpdatePeriodSeconds).
        """
        rules = self.objects.get(name)
        if rules is None or rules.allocatable_period is None or self.drivers.get(name) is None:
            return False
        now = asyncio.get_running_loop().time()
        if now >= self._requested_at.get(name, float("-inf")) + REQUERY_S:
            self._requested_at[name] = now
            task = asyncio.create_task(self._renew_now(name), name=f"csi limit of {name}")
            self._queries.add(task)
            task.add_done_callback(self._queries.discard)
        return True

    async def close(self) -> None:
        """Cancel periodic and pending queries."""
        tasks = (*self._renewing.values(), *self._queries)
        self._renewing.clear()
        await cancel_tasks(tasks)

    async def _on_node(self, info: PluginInfo) -> csi_objects.DriverOnNode:
        driver = self.drivers.get(info.name)
        if driver is None or driver.info != info:
            raise PluginRefused(f"driver {info.name} has disconnected")
        answer = await driver.client.info()
        if answer.odd:
            log.warning(
                "unexpected answer of a CSI driver", extra={"driver": info.name, "what": answer.odd}
            )
        return csi_objects.DriverOnNode(
            info.name, answer.node_id, answer.max_volumes, answer.topology
        )

    def _version(self, info: PluginInfo) -> csi_objects.Version:
        if _NAME.fullmatch(info.name) is None:
            raise PluginRefused(f"{info.name!r} cannot be the name of a CSI driver")
        version = csi_objects.highest_supported(info.versions)
        if version is None:
            offered = ", ".join(info.versions) or "none"
            raise PluginRefused(
                f"driver {info.name}: none of its versions is supported (1.x): {offered}"
            )
        other = self.drivers.get(info.name)
        if other is not None and other.info != info and other.version >= version:
            has = ".".join(map(str, other.version))
            raise PluginRefused(
                f"driver {info.name}: another of that name is registered with version {has} "
                f"(socket {other.info.socket})"
            )
        return version

    def _retime(self, name: str) -> None:
        """Start, change or stop the periodic queries (nodeAllocatableUpdatePeriodSeconds)."""
        for each in [name] if name else self.drivers.names:
            task = self._renewing.pop(each, None)
            if task is not None:
                task.cancel()
            found = self.objects.get(each)
            period = found.allocatable_period if found is not None else None
            if period is not None and self.drivers.get(each) is not None:
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


DEFAULT_PERIOD_S = 60.0
"""Between two rounds, if the configured period is 0 or less."""


class StorageHealthMonitor(Component):
    """Queries drivers for the health of their storage here, and reports it to the CSINode.

    All drivers are queried concurrently, once per period; one write contains all answers. A call or
    a write that fails changes nothing and is repeated in the next period (table sr2). Make it
    inside a running event loop.
    """

    node_name: str
    node_uid: Callable[[], str]
    """Returns the uid of the Node object; empty: not known yet."""
    drivers: CsiDrivers
    api: KubeApi | None
    """None: standalone, only the metrics are kept."""
    metrics: CsiMetrics
    clock: Clock
    period: float
    """Seconds between two rounds; 0 or less: a minute."""

    def __post_init__(self) -> None:
        self._problems: dict[str, str] = {}
        """Driver -> why its last call failed; empty name: why the last write did."""

    async def run(self) -> None:
        """Query drivers until canceled."""
        while True:
            await self.round()
            await asyncio.sleep(self.period if self.period > 0 else DEFAULT_PERIOD_S)

    async def round(self) -> None:
        """Query every registered driver once, and write what differs."""
        names = self.drivers.names
        self.metrics.storage_unknown(names)
        for removed in self._problems.keys() - {"", *names}:
            del self._problems[removed]
        answers = zip(names, await run_together(*map(self._query_health, names)), strict=True)
        reported = {name: found for name, found in answers if found is not None}
        for name, conditions in reported.items():
            keys = ((each["status"], each["reason"]) for each in conditions)
            self.metrics.storage_reported(name, keys)
        if reported and self.api is not None:
            await self._write(self.api, reported)

    async def _query_health(self, name: str) -> csi_objects.Conditions | None:
        driver = self.drivers.get(name)
        if driver is None:
            return None
        try:
            found = await driver.client.storage_health()
        except OperationFailed as error:
            if self._is_new(name, error.message):
                extra = {"driver": name, "why": error.message}
                log.warning("health of a CSI driver's storage not read; it stays", extra=extra)
            return None
        self._problems.pop(name, None)
        return found

    async def _write(self, api: KubeApi, reported: Mapping[str, csi_objects.Conditions]) -> None:
        try:
            found = await api.get(CSINODES, self.node_name)
            if not csi_objects.owned_by(found, self.node_uid()):
                return  # of a Node object that was deleted: another CSINode replaces it
            old = (found.get("status") or {}).get("storageHealth") or ()
            new = csi_objects.changed_storage_health(old, reported, format_time(self.clock.now()))
            if new is not None:
                uid = (found.get("metadata") or {}).get("uid") or ""
                patch = {"metadata": {"uid": uid}, "status": {"storageHealth": new}}
                kind = PatchType.MERGE
                await api.patch(
                    CSINODES, self.node_name, patch, subresource="status", patch_type=kind
                )
        except ApiError as error:
            if self._is_new("", error.message):
                extra = {"csinode": self.node_name, "why": error.message}
                log.warning(
                    "health of CSI drivers' storage not written; is feature gate CSIVolumeHealth "
                    "on in the API server?",
                    extra=extra,
                )
            return
        self._problems.pop("", None)

    def _is_new(self, subject: str, problem: str) -> bool:
        """Whether a failure is another one than the last, which was logged."""
        new = self._problems.get(subject) != problem
        self._problems[subject] = problem
        return new

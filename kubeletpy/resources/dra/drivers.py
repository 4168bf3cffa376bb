"""The DRA drivers of this node, and the calls to them that prepare and unprepare claims.

Each driver has endpoints, one of which is used; a driver that is being updated has two for a while.
:mod:`.client` is loaded with the first driver. :mod:`.claim_manager` decides for which claims a
driver is called. Source: docs/reference/behaviour-resources.md, ru, rv.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import cancel_tasks, run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import RESOURCESLICES, KubeApi, PatchType
from kubeletpy.metrics.resources import DraMetrics
from kubeletpy.resources.dra.model import CALL_S, ClaimDevice, ClaimInfo, ClaimProblem, ClaimWait
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused

if TYPE_CHECKING:
    from kubeletpy.resources.dra.client import DriverClient, OpenDriver


_NAME = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_MAX_NAME = 63
MAX_ENDPOINTS = 8
"""Per driver: a rolling update has two."""


class DraDrivers(Component):
    """Handles plugins of type DRAPlugin, and finds the endpoint to call a driver by."""

    metrics: DraMetrics
    calls: OpenDriver | None = None
    """How endpoints are called; None: over sockets."""
    on_report: Callable[[str, Any], None] | None = None
    """Called with a driver's name and its report on its devices; None: the health of devices is not
    watched."""

    def __post_init__(self) -> None:
        self._endpoints: dict[str, list[tuple[PluginInfo, DriverClient]]] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def on_change(self, notify: Callable[[str], None]) -> None:
        """Call ``notify(name)`` at each change of a driver's endpoints or their connections."""
        self._listeners.append(notify)

    @property
    def names(self) -> list[str]:
        """The names of all registered drivers."""
        return sorted(self._endpoints)

    def get(self, name: str) -> DriverClient | None:
        """Return a driver's newest connected endpoint, else its newest one."""
        clients = [client for _, client in reversed(self._endpoints.get(name, []))]
        return next((each for each in clients if each.connected), clients[0] if clients else None)

    def connected(self, name: str) -> bool:
        """Whether any endpoint of a driver is connected."""
        return any(client.connected for _, client in self._endpoints.get(name, []))

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this driver cannot be used."""
        self._version(info)

    async def register(self, info: PluginInfo) -> None:
        """Use an endpoint from now on. Raises PluginRefused."""
        from kubeletpy.resources.dra import answers
        from kubeletpy.resources.dra.client import DriverClient, over_sockets

        version = self._version(info)
        endpoints = self._endpoints.get(info.name, [])
        if any(known.endpoint == info.endpoint for known, _ in endpoints):
            raise PluginRefused(
                f"DRA driver {info.name}: endpoint {info.endpoint} is registered already"
            )
        if len(endpoints) >= MAX_ENDPOINTS:
            raise PluginRefused(f"DRA driver {info.name}: it has {MAX_ENDPOINTS} endpoints already")
        try:
            client = DriverClient(
                info.name,
                info.endpoint,
                version,
                self.metrics,
                self._changed,
                health=answers.health_service(info.versions),
                calls=self.calls or over_sockets,
                on_report=self.on_report,
            )
        except ValueError as error:
            raise PluginRefused(f"DRA driver {info.name}: {error}") from None
        self._endpoints.setdefault(info.name, []).append((info, client))
        self._changed(info.name)

    async def deregister(self, info: PluginInfo) -> None:
        """Stop using an endpoint."""
        endpoints = self._endpoints.get(info.name, [])
        removed = [client for known, client in endpoints if known == info]
        if not removed:
            return
        left = [(known, client) for known, client in endpoints if known != info]
        if left:
            self._endpoints[info.name] = left
        else:
            del self._endpoints[info.name]
        for client in removed:
            self._close_client(client)
        self._changed(info.name)

    async def close(self) -> None:
        """Close all endpoints, and wait until they are closed."""
        for endpoints in self._endpoints.values():
            for _, client in endpoints:
                self._close_client(client)
        self._endpoints.clear()
        self._listeners.clear()
        await run_together(*self._closing)

    def _version(self, info: PluginInfo) -> str:
        from kubeletpy.resources.dra import answers

        if len(info.name) > _MAX_NAME or _NAME.fullmatch(info.name) is None:
            raise PluginRefused(f"{info.name!r} cannot be the name of a DRA driver")
        version = answers.service(info.versions)
        if version is None:
            offered = ", ".join(info.versions) or "none"
            known = ", ".join(answers.SERVICES)
            raise PluginRefused(
                f"DRA driver {info.name}: it has none of the services {known}: {offered}"
            )
        return version

    def _changed(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)

    def _close_client(self, client: DriverClient) -> None:
        task = asyncio.create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class DriverResponse(Struct, frozen=True):
    """A driver's prepared devices, by the claims' uids, and its errors."""

    devices: Mapping[str, tuple[ClaimDevice, ...]]
    problems: Sequence[str] = ()


class DriverCalls(Component):
    """Calls drivers for claims, and records what pods wait for.

    Make it inside a running event loop.
    """

    drivers: DraDrivers
    wake: Callable[[str], None]
    """Called with the uid of a pod when a driver that it waits for is registered."""

    def __post_init__(self) -> None:
        self._missing: dict[str, set[str]] = {}
        """Driver -> uids of pods that wait for it."""
        self._now = asyncio.get_running_loop().time
        self._under_way: list[tuple[frozenset[str], ClaimWait]] = []
        """The calls in progress, with the uids of the pods that wait for them."""
        self.drivers.on_change(self._driver_changed)

    def require(self, uid: str, drivers: Iterable[str]) -> None:
        """Raise ClaimProblem unless all of them are registered; then the pod waits for them."""
        missing = [name for name in drivers if self.drivers.get(name) is None]
        for name in missing:
            self._missing.setdefault(name, set()).add(uid)
        if missing:
            here = ", ".join(self.drivers.names) or "none"
            raise ClaimProblem(
                f"DRA driver {', '.join(missing)} is not registered on this node "
                f"(registered: {here})",
                Cause(CauseKind.CLAIM_DRIVER_MISSING, missing[0]),
            )

    def forget_others(self, uids: Collection[str]) -> None:
        """Forget the waits of all pods but these."""
        for waiting in self._missing.values():
            waiting.intersection_update(uids)
        self._missing = {name: waiting for name, waiting in self._missing.items() if waiting}

    async def call_drivers(
        self, claims: Mapping[str, Sequence[ClaimInfo]], method: str
    ) -> dict[str, DriverResponse]:
        """Call drivers in parallel, each with its claims; return the answers by driver."""
        found = await run_together(
            *(self._call(driver, requested, method) for driver, requested in claims.items())
        )
        return dict(zip(claims, found, strict=True))

    def waits(self, uid: str) -> list[ClaimWait]:
        """The calls in progress that a pod waits for."""
        return [wait for uids, wait in self._under_way if uid in uids]

    async def _call(self, driver: str, claims: Sequence[ClaimInfo], method: str) -> DriverResponse:
        """Call one driver. Never raises; errors are the answer's problems."""
        client = self.drivers.get(driver)
        if client is None:
            return DriverResponse({}, [f"DRA driver {driver} is not registered on this node"])
        names, now = {claim.uid: claim.full_name for claim in claims}, self._now()
        wait = ClaimWait(", ".join(names.values()), driver, method, now, now + CALL_S)
        call = frozenset[str]().union(*(claim.pods for claim in claims)), wait
        self._under_way.append(call)
        try:
            found = await client.call(method, claims)
        except ClaimProblem as error:
            return DriverResponse({}, [str(error)])
        finally:
            self._under_way.remove(call)
        problems = [
            f"ResourceClaim {names[uid]}: DRA driver {driver}: {error}"
            for uid, error in found.errors.items()
        ]
        return DriverResponse(found.devices, problems)

    def _driver_changed(self, driver: str) -> None:
        if self.drivers.get(driver) is not None:
            for uid in self._missing.pop(driver, ()):
                self.wake(uid)


# Deletes the ResourceSlices of drivers that were removed: their devices must not be allocated.
#
# Drivers write their slices themselves, and name the Node object of their start as owner. Slices
# of a Node that was created anew get its uid here: the cluster would collect them as garbage.
# Source: docs/reference/behaviour-resources.md, rv.

log = logging.getLogger(__name__)

REMOVED_S = 30.0
"""How long a driver may be disconnected. Source: docs/reference/constants.csv:
DRA reconcile / slice wipe delay."""
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 300.0
ADOPTIONS_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds before each pass over the slices of a Node that was created anew: a driver that notices
the removal of its slices writes them with the former owner again."""
_ALL = ""


class SliceCleaner(Component):
    """Cleans up the slices of one node."""

    kube_api: KubeApi
    node_name: str
    drivers: DraDrivers

    def __post_init__(self) -> None:
        self._pending: dict[str, asyncio.Task[None]] = {}
        self._running = False
        self._adopting: asyncio.Task[None] | None = None
        self.drivers.on_change(self._changed)

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
        selector = f"spec.nodeName={self.node_name}"
        listed = await self.kube_api.list(RESOURCESLICES, field_selector=selector)
        found: set[str] = set()
        for each in listed.get("items") or ():
            owners = each["metadata"].get("ownerReferences") or []
            new = [{**owner, "uid": uid} if owner["kind"] == "Node" else owner for owner in owners]
            if new != owners:
                found.add(each["spec"]["driver"])
                patch = {"metadata": {"ownerReferences": new}}
                await self.kube_api.patch(
                    RESOURCESLICES, each["metadata"]["name"], patch, patch_type=PatchType.MERGE
                )
        return found

    def _changed(self, driver: str) -> None:
        pending = self._pending.get(driver)
        if self.drivers.connected(driver):
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
        selector, wait = f"spec.nodeName={self.node_name}", FIRST_RETRY_S
        if driver:
            selector += f",spec.driver={driver}"
        while True:
            try:
                await self.kube_api.delete_collection(RESOURCESLICES, field_selector=selector)
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

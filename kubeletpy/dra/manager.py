"""Prepares the claims of pods, gives their containers the devices, and gives claims back.

Whatever is done about a claim is done by one at a time. A pod's use of a claim is on the disk
before a driver is asked, and until the drivers have given it back. Source:
docs/reference/behaviour-resources.md, ru.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.dra import model
from kubeletpy.dra.claims import (
    Allocated,
    ClaimProblem,
    ClaimUse,
    allocated,
    container_uses,
    extended_requests,
    uses,
)
from kubeletpy.dra.drivers import Drivers
from kubeletpy.dra.model import ClaimInfo, ClaimKey, Device
from kubeletpy.dra.state import ClaimState
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import RESOURCECLAIMS, KubeApi
from kubeletpy.metrics.dra import DraMetrics
from kubeletpy.pods.config_errors import ContainerConfigError
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.additions import ContainerAdditions

log = logging.getLogger(__name__)

LOOK_S = 60.0
"""Between two looks for claims of pods that are gone. Source: docs/reference/constants.csv:
DRA reconcile / slice wipe delay."""


class ClaimManager:
    """The claims of the pods of a node. Make it inside a running event loop."""

    def __init__(
        self,
        kube_api: KubeApi | None,
        drivers: Drivers,
        state: ClaimState,
        metrics: DraMetrics,
        *,
        wake: Callable[[str], None] = lambda uid: None,
        runtime_has_cdi: bool = True,
    ) -> None:
        """Args:
        kube_api: None: standalone, there are no claims.
        wake: called with a pod's uid when what it waits for may work now.
        runtime_has_cdi: False: the runtime would leave CDI devices out without a word.
        """
        self._has_cdi = runtime_has_cdi
        self._api = kube_api
        self._drivers = drivers
        self._state = state
        self._metrics = metrics
        self._wake = wake
        self._locks: dict[ClaimKey, _Lock] = {}
        self._missing: dict[str, set[str]] = {}
        """Driver -> uids of pods that wait for it."""
        self._wanted: Collection[str] | None = None
        self._look = asyncio.Event()
        drivers.on_change(self._driver_changed)

    # -- for a pod's worker --------------------------------------------------------------------

    async def prepare(self, pod: Pod) -> None:
        """Have all claims of a pod prepared. Raises ClaimProblem."""
        if wanted := uses(pod):
            async with self._measured("PrepareResources"):
                await self._prepare(pod, wanted)

    async def unprepare(self, uid: str) -> None:
        """Give back what no other pod uses. Raises ClaimProblem."""
        if self.holds(uid):
            async with self._measured("UnprepareResources"):
                await self._unprepare(uid)

    def holds(self, uid: str) -> bool:
        """Whether a pod uses claims that have not been given back."""
        return any(uid in claim.pods for claim in self._state.claims.values())

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """Add the devices of its claims. Raises ContainerConfigError."""
        if not container_uses(pod, container):
            return given
        asked = [
            (each.get("name") or "", each.get("request") or "")
            for each in (container.get("resources") or {}).get("claims") or ()
        ]
        asked += [("", request) for request in extended_requests(pod, container["name"])]
        try:
            found = model.cdi_devices(self._state.claims, pod, uses(pod), asked)
        except ClaimProblem as error:
            raise ContainerConfigError(str(error)) from None
        if found and not self._has_cdi:
            raise ContainerConfigError(
                f"this container runtime knows no CDI devices ({', '.join(found)} for its claims); "
                "containerd has them from 1.7 on"
            )
        both = dict.fromkeys((*given.cdi_devices, *found))
        return replace(given, cdi_devices=tuple(both))

    # -- for pods that are gone ----------------------------------------------------------------

    def pods_known(self, uids: Collection[str]) -> None:
        """These are the pods that there are; claims of others are given back."""
        self._wanted = uids
        for waiting in self._missing.values():
            waiting.intersection_update(uids)
        self._missing = {name: waiting for name, waiting in self._missing.items() if waiting}
        if self._left():
            self._look.set()

    async def run(self) -> None:
        """Give back what pods that are gone have left, until cancelled."""
        while True:
            await self._look.wait()
            self._look.clear()
            await asyncio.gather(*(self._clear(uid) for uid in self._left()))
            if self._left():
                try:
                    async with asyncio.timeout(LOOK_S):
                        await self._look.wait()
                except TimeoutError:
                    self._look.set()

    async def _clear(self, uid: str) -> None:
        try:
            await self.unprepare(uid)
        except ClaimProblem as error:
            log.warning(
                "claims of a pod that is gone not given back",
                extra={"uid": uid, "why": str(error), "again_in": LOOK_S},
            )

    def _left(self) -> list[str]:
        if self._wanted is None:
            return []
        used = {uid for claim in self._state.claims.values() for uid in claim.pods}
        return sorted(used.difference(self._wanted))

    # -- prepare -------------------------------------------------------------------------------

    async def _prepare(self, pod: Pod, wanted: Sequence[ClaimUse]) -> None:
        objects = await asyncio.gather(*(self._read(pod, use) for use in wanted))
        found = {
            claim.name: claim
            for claim in (
                allocated(pod, use, obj) for use, obj in zip(wanted, objects, strict=True)
            )
        }
        async with self._alone((pod.namespace, name) for name in found):
            claims = [self._referenced(claim, pod) for claim in found.values()]
            todo = model.by_driver(claim for claim in claims if not claim.prepared)
            self._require(pod, todo)
            if any(self._state.claims.get(claim.key) != claim for claim in claims):
                await self._state.put(claims)
            if not all(claim.prepared for claim in claims):
                await self._ask(claims, todo)

    async def _read(self, pod: Pod, use: ClaimUse) -> Any:
        if self._api is None:
            raise ClaimProblem(f"ResourceClaim {pod.namespace}/{use.claim}: there is no API here")
        try:
            return await self._api.get(RESOURCECLAIMS, use.claim, pod.namespace)
        except ApiError as error:
            raise ClaimProblem(
                f"ResourceClaim {pod.namespace}/{use.claim} cannot be read: {error}"
            ) from error

    def _referenced(self, claim: Allocated, pod: Pod) -> ClaimInfo:
        known = self._state.claims.get((pod.namespace, claim.name))
        return model.referenced(known, claim, pod.uid)

    def _require(self, pod: Pod, drivers: Iterable[str]) -> None:
        """Raise ClaimProblem unless all of them are registered."""
        missing = [name for name in drivers if self._drivers.get(name) is None]
        for name in missing:
            self._missing.setdefault(name, set()).add(pod.uid)
        if missing:
            here = ", ".join(self._drivers.names) or "none"
            raise ClaimProblem(
                f"DRA driver {', '.join(missing)} is not registered on this node "
                f"(registered: {here})"
            )

    async def _ask(self, claims: Sequence[ClaimInfo], todo: dict[str, list[ClaimInfo]]) -> None:
        """Call the drivers, side by side; keep what they gave, also when one of them failed."""
        answers = await asyncio.gather(
            *(self._call(driver, asked, prepare=True) for driver, asked in todo.items())
        )
        problems: list[str] = []
        given: dict[str, dict[str, tuple[Device, ...]]] = {}
        for driver, (devices, errors) in zip(todo, answers, strict=True):
            problems += errors
            for uid, each in devices.items():
                given.setdefault(uid, {})[driver] = each
        done = []
        for claim in claims:
            if claim.prepared:
                continue
            mine = given.get(claim.uid, {})
            done.append(
                replace(
                    claim,
                    drivers={**claim.drivers, **mine},
                    prepared=set(mine) == set(claim.drivers),
                )
            )
        await self._state.put(done)
        if problems:
            raise ClaimProblem("; ".join(problems))

    # -- unprepare -----------------------------------------------------------------------------

    async def _unprepare(self, uid: str) -> None:
        used = [key for key, claim in self._state.claims.items() if uid in claim.pods]
        async with self._alone(used):
            kept, ending = model.leaving(self._state.claims, uid)
            if kept:
                await self._state.put(kept)
            if not ending:
                return
            # whatever comes of the calls, the devices may not be there any more
            await self._state.put([replace(c, prepared=False, restored=False) for c in ending])
            todo = model.by_driver(ending)
            answers = await asyncio.gather(
                *(self._call(driver, asked, prepare=False) for driver, asked in todo.items())
            )
            gone = [
                claim
                for claim in ending
                if all(
                    claim.uid in devices
                    for driver, (devices, _) in zip(todo, answers, strict=True)
                    if driver in claim.drivers
                )
            ]
            if gone:
                await self._state.drop(gone)
            problems = [problem for _, errors in answers for problem in errors]
            if problems:
                raise ClaimProblem("; ".join(problems))

    # -- both ----------------------------------------------------------------------------------

    async def _call(
        self, driver: str, claims: Sequence[ClaimInfo], *, prepare: bool
    ) -> tuple[dict[str, tuple[Device, ...]], list[str]]:
        """What a driver gave by claim, and what went wrong; nothing is raised."""
        client = self._drivers.get(driver)
        if client is None:
            return {}, [f"DRA driver {driver} is not registered on this node"]
        try:
            found = await (client.prepare(claims) if prepare else client.unprepare(claims))
        except ClaimProblem as error:
            return {}, [str(error)]
        shown = {claim.uid: claim.shown for claim in claims}
        return found.devices, [
            f"ResourceClaim {shown[uid]}: DRA driver {driver}: {error}"
            for uid, error in found.errors.items()
        ]

    @asynccontextmanager
    async def _alone(self, keys: Iterable[ClaimKey]) -> AsyncIterator[None]:
        """Be the only one who does something about these claims. Taken in one order by all."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                lock = self._locks.setdefault(key, _Lock())
                lock.users += 1
                stack.callback(self._leave, key, lock)
                await stack.enter_async_context(lock.lock)
            yield

    def _leave(self, key: ClaimKey, lock: _Lock) -> None:
        lock.users -= 1
        if not lock.users:
            del self._locks[key]

    @asynccontextmanager
    async def _measured(self, operation: str) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        start, failed = loop.time(), True
        try:
            yield
            failed = False
        finally:
            self._metrics.operated(operation, loop.time() - start, failed=failed)

    def _driver_changed(self, driver: str) -> None:
        if self._drivers.get(driver) is None:
            return
        for uid in self._missing.pop(driver, ()):
            self._wake(uid)
        if self._left():
            self._look.set()


class _Lock:
    """Of one claim."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0

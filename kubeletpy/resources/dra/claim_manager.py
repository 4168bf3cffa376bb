"""Prepares the claims of pods, provides their devices to containers, and unprepares claims.

:mod:`.drivers` calls the drivers. Work on any one claim is serialized. A pod's use of a claim is on
the disk before a driver is called, and until the drivers have unprepared it. Source:
docs/reference/behaviour-resources.md, ru, rx.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import run_all, run_together, wait_within
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import RESOURCECLAIMS, KubeApi
from kubeletpy.metrics.resources import DraMetrics
from kubeletpy.pods.pod import HeldResource, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.resources.dra import model
from kubeletpy.resources.dra.drivers import DraDrivers, DriverCalls, DriverResponse
from kubeletpy.resources.placement.state import StateError
from kubeletpy.runtime_manager.protocol import ContainerAdditions

log = logging.getLogger(__name__)

CHECK_S = 60.0
"""Between two checks for claims of pods that were removed. Source: docs/reference/constants.csv:
DRA reconcile / slice wipe delay."""


class ClaimState(Component):
    """The claims on this node, in memory and in their file.

    A change is on the disk when ``put`` or ``drop`` returns. Use it inside the event loop only.
    """

    path: Path
    show: Callable[[model.Claims], None]
    """Called with the claims at each change."""

    def __post_init__(self) -> None:
        """Read the file, if there is one.

        Raises:
            StateError: the file cannot be used. The agent must not run then: claims of running
                pods would be prepared again, and never unprepared.
        """
        self._file = StateFile(
            self.path, self._capture, "prepared claims are not written; trying again"
        )
        self._claims: dict[model.ClaimKey, model.ClaimInfo] = {
            claim.key: claim for claim in _read(self.path)
        }
        self.show(self._claims)

    @property
    def claims(self) -> model.Claims:
        """The claims that pods of this node use."""
        return self._claims

    async def put(self, claims: Iterable[model.ClaimInfo]) -> None:
        """Add or replace these claims. Raises ClaimProblem: the disk does not take it."""
        for claim in claims:
            self._claims[claim.key] = claim
        await self._save()

    async def drop(self, claims: Iterable[model.ClaimInfo]) -> None:
        """Forget these claims. Raises ClaimProblem: the disk does not take it."""
        for claim in claims:
            self._claims.pop(claim.key, None)
        await self._save()

    async def close(self) -> None:
        """Wait for a write in progress."""
        await self._file.close()

    async def _save(self) -> None:
        self.show(self._claims)
        try:
            await self._file.write()
        except OSError as error:
            raise model.ClaimProblem(f"{self._file.path} cannot be written: {error}") from error

    def _capture(self) -> Callable[[], str]:
        from kubeletpy.resources.dra import checkpoint  # most nodes have no claims

        return partial(checkpoint.render, list(self._claims.values()))


def _read(path: Path) -> list[model.ClaimInfo]:
    try:
        data = read_state(path)
        from kubeletpy.resources.dra import checkpoint  # most nodes have no claims

        return checkpoint.parse_checkpoint(data.decode())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise StateError(f"{path}: {error}. Drain the node and remove the file") from error


class ClaimManager(Component):
    """The claims of the pods of a node. Make it inside a running event loop."""

    kube_api: KubeApi | None
    """None: standalone, there are no claims."""
    drivers: DraDrivers
    state: ClaimState
    metrics: DraMetrics
    may_skip: bool = False
    """Gate DRAOptionalNodeOperations: allocations may exempt drivers from calls."""
    wake: Callable[[str], None] = lambda uid: None
    """Called with a pod's uid when a driver that it waits for is registered."""

    def __post_init__(self) -> None:
        self._calls = DriverCalls(self.drivers, self.wake)
        self._locks = WeakValueDictionary[model.ClaimKey, asyncio.Lock]()
        self._absent: set[str] = set()
        """Uids of pods that have left claims behind."""
        self._retry = asyncio.Event()
        self.drivers.on_change(self._retry_leftovers)

    # -- for a pod's worker --------------------------------------------------------------------

    async def prepare(self, pod: Pod) -> None:
        """Have all claims of a pod prepared. Raises ClaimProblem."""
        self._absent.discard(pod.uid)
        if desired := model.claim_uses(pod):
            async with self._measured("PrepareResources"):
                await self._prepare(pod, desired)

    async def unprepare(self, uid: str) -> None:
        """Unprepare the claims that no other pod uses. Raises ClaimProblem."""
        if self.holds(uid):
            async with self._measured("UnprepareResources"):
                await self._unprepare(uid)

    def holds(self, uid: str) -> bool:
        """Whether a pod uses claims that have not been unprepared."""
        return any(uid in claim.pods for claim in self.state.claims.values())

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """Add the devices of the container's claims. Raises ContainerConfigError."""
        if not model.container_uses_claims(pod, container):
            return supplied
        try:
            requested = model.container_requests(pod, container)
            found = model.cdi_devices(self.state.claims, pod, model.claim_uses(pod), requested)
        except model.ClaimProblem as error:
            raise ContainerConfigError(str(error)) from None
        both = dict.fromkeys((*supplied.cdi_devices, *found))
        return replace(supplied, cdi_devices=tuple(both))

    def container_claims(
        self, pod: Pod, container: api.Container
    ) -> tuple[model.ContainerClaim, ...]:
        """The claims that a container uses, with their devices; for the pod resources API."""
        if not model.container_uses_claims(pod, container):
            return ()
        try:
            names = [name for name, _ in model.container_requests(pod, container)]
            return model.container_claims(self.state.claims, pod, model.claim_uses(pod), names)
        except model.ClaimProblem:
            return ()  # a claim is not made yet: the container cannot have started

    def waits(self, uid: str) -> list[model.ClaimWait]:
        """The calls to drivers that a pod waits for."""
        return self._calls.waits(uid)

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """The devices that each container of a pod has from claims, for messages."""
        if not self.state.claims:
            return []
        return [
            HeldResource(container["name"], f"claim {claim.name}", _listed(claim.devices))
            for _, container in pod.all_containers()
            for claim in self.container_claims(pod, container)
        ]

    # -- for removed pods ------------------------------------------------------------------------

    def pods_known(self, uids: Collection[str]) -> None:
        """Set the pods that exist; claims of others are unprepared."""
        # only now is it known which pods left something: later there are others
        self._absent = self._users().difference(uids)
        self._calls.forget_others(uids)
        if self._left():
            self._retry.set()

    async def run(self) -> None:
        """Unprepare what pods that were removed left behind, until cancelled."""
        while True:
            await self._retry.wait()
            self._retry.clear()
            await run_together(*(self._clear(uid) for uid in self._left()))
            if self._left() and not await wait_within(self._retry, CHECK_S):
                self._retry.set()

    async def _clear(self, uid: str) -> None:
        try:
            await self.unprepare(uid)
        except model.ClaimProblem as error:
            log.warning(
                "claims of a removed pod could not be unprepared",
                extra={"uid": uid, "why": str(error), "again_in": CHECK_S},
            )

    def _left(self) -> list[str]:
        return sorted(self._absent & self._users()) if self._absent else []

    def _users(self) -> set[str]:
        return {uid for claim in self.state.claims.values() for uid in claim.pods}

    # -- prepare -------------------------------------------------------------------------------

    async def _prepare(self, pod: Pod, desired: Sequence[model.ClaimUse]) -> None:
        objects = await run_all(*(self._read_claim(pod, use) for use in desired))
        found = {
            claim.name: claim
            for claim in (
                model.allocated_claim(pod, use, obj)
                for use, obj in zip(desired, objects, strict=True)
            )
        }
        async with self._alone((pod.namespace, name) for name in found):
            known = self.state.claims
            claims = [
                model.referenced(
                    known.get((pod.namespace, name)), claim, pod.uid, may_skip=self.may_skip
                )
                for name, claim in found.items()
            ]
            unprepared = [claim for claim in claims if not claim.prepared]
            todo = model.claims_by_driver(unprepared, model.PREPARE)
            self._calls.require(pod.uid, todo)
            if any(known.get(claim.key) != claim for claim in claims):
                await self.state.put(claims)
            if unprepared:
                self.metrics.skipped_prepare(model.exempted(unprepared, model.PREPARE))
                await self._call_drivers(claims, todo)

    async def _read_claim(self, pod: Pod, use: model.ClaimUse) -> Any:
        if self.kube_api is None:
            raise model.ClaimProblem(
                f"ResourceClaim {pod.namespace}/{use.claim}: there is no API here"
            )
        try:
            return await self.kube_api.get(RESOURCECLAIMS, use.claim, pod.namespace)
        except ApiError as error:
            raise model.ClaimProblem(
                f"ResourceClaim {pod.namespace}/{use.claim} cannot be read: {error}",
                Cause(CauseKind.CLAIM_MISSING, use.claim) if isinstance(error, NotFound) else None,
            ) from error

    async def _call_drivers(
        self, claims: Sequence[model.ClaimInfo], todo: dict[str, list[model.ClaimInfo]]
    ) -> None:
        """Call the drivers; keep what they prepared even when one of them failed."""
        answers = await self._calls.call_drivers(todo, model.PREPARE)
        prepared: dict[str, dict[str, tuple[model.ClaimDevice, ...]]] = {}
        for driver, answer in answers.items():
            for uid, each in answer.devices.items():
                prepared.setdefault(uid, {})[driver] = each
        done = []
        for claim in claims:
            if claim.prepared:
                continue
            mine = prepared.get(claim.uid, {})
            done.append(
                replace(
                    claim,
                    drivers={**claim.drivers, **mine},
                    prepared=set(mine) == set(claim.called(model.PREPARE)),
                )
            )
        await self.state.put(done)
        _raise_problems(answers)

    # -- unprepare -----------------------------------------------------------------------------

    async def _unprepare(self, uid: str) -> None:
        used = [key for key, claim in self.state.claims.items() if uid in claim.pods]
        async with self._alone(used):
            kept, ending = model.leaving(self.state.claims, uid)
            if kept:
                await self.state.put(kept)
            if not ending:
                return
            # whatever the result of the calls, the devices may have been released
            await self.state.put([replace(c, prepared=False, restored=False) for c in ending])
            self.metrics.skipped_unprepare(model.exempted(ending, model.UNPREPARE))
            answers = await self._calls.call_drivers(
                model.claims_by_driver(ending, model.UNPREPARE), model.UNPREPARE
            )
            removed = [
                claim
                for claim in ending
                if all(
                    claim.uid in answer.devices
                    for driver, answer in answers.items()
                    if driver in claim.called(model.UNPREPARE)
                )
            ]
            if removed:
                await self.state.drop(removed)
            _raise_problems(answers)

    # -- both ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _alone(self, keys: Iterable[model.ClaimKey]) -> AsyncIterator[None]:
        """Lock these claims against all other work. All callers lock in the same order."""
        async with AsyncExitStack() as stack:
            for key in sorted(set(keys)):
                await stack.enter_async_context(self._locks.setdefault(key, asyncio.Lock()))
            yield

    @asynccontextmanager
    async def _measured(self, operation: str) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        start, failed = loop.time(), True
        try:
            yield
            failed = False
        finally:
            self.metrics.operated(operation, loop.time() - start, failed=failed)

    def _retry_leftovers(self, driver: str) -> None:
        if self._left():
            self._retry.set()


def _listed(devices: Mapping[str, Sequence[model.ClaimDevice]]) -> str:
    return ", ".join(
        f"{driver}/{each.pool}/{each.name}"
        for driver, prepared in devices.items()
        for each in prepared
    )


def _raise_problems(answers: Mapping[str, DriverResponse]) -> None:
    """Raise ClaimProblem with the errors of all drivers, if there are any."""
    failed = {driver: answer.problems for driver, answer in answers.items() if answer.problems}
    if failed:
        text = "; ".join(problem for problems in failed.values() for problem in problems)
        raise model.ClaimProblem(text, Cause(CauseKind.CLAIM_DRIVER, next(iter(failed))))

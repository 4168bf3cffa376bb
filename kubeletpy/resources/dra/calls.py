"""Calls DRA drivers to prepare and unprepare claims, and records what pods wait for.

Must never decide for which claims a driver is called: :mod:`.claim_manager` does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import run_together
from kubeletpy.resources.dra.claims import PREPARE, UNPREPARE, ClaimProblem
from kubeletpy.resources.dra.drivers import DraDrivers
from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo, ClaimWait


class DriverResponse(Struct, frozen=True):
    """A driver's prepared devices, by the claims' uids, and its errors."""

    devices: Mapping[str, tuple[ClaimDevice, ...]]
    problems: Sequence[str] = ()


class _UnderWay(Struct, frozen=True):
    driver: str
    claims: tuple[ClaimInfo, ...]
    since: float
    prepare: bool


class DriverCalls:
    """The calls to drivers. Make it inside a running event loop."""

    def __init__(self, drivers: DraDrivers, wake: Callable[[str], None]) -> None:
        """``wake``: called with the uid of a pod when a driver that it waits for is registered."""
        self._drivers = drivers
        self._wake = wake
        self._missing: dict[str, set[str]] = {}
        """Driver -> uids of pods that wait for it."""
        self._now = asyncio.get_running_loop().time
        self._numbers = itertools.count()
        self._under_way: dict[int, _UnderWay] = {}
        drivers.on_change(self._driver_changed)

    def require(self, uid: str, drivers: Iterable[str]) -> None:
        """Raise ClaimProblem unless all of them are registered; then the pod waits for them."""
        missing = [name for name in drivers if self._drivers.get(name) is None]
        for name in missing:
            self._missing.setdefault(name, set()).add(uid)
        if missing:
            here = ", ".join(self._drivers.names) or "none"
            raise ClaimProblem(
                f"DRA driver {', '.join(missing)} is not registered on this node "
                f"(registered: {here})"
            )

    def forget_others(self, uids: Collection[str]) -> None:
        """No other pod waits for a driver."""
        for waiting in self._missing.values():
            waiting.intersection_update(uids)
        self._missing = {name: waiting for name, waiting in self._missing.items() if waiting}

    async def call_drivers(
        self, claims: Mapping[str, Sequence[ClaimInfo]], *, prepare: bool
    ) -> dict[str, DriverResponse]:
        """Call drivers side by side, each with its claims; the answers by driver."""
        found = await run_together(
            *(self._call(driver, asked, prepare=prepare) for driver, asked in claims.items())
        )
        return dict(zip(claims, found, strict=True))

    def waits(self, uid: str) -> list[ClaimWait]:
        """The calls that a pod waits for."""
        if not self._under_way:
            return []
        from kubeletpy.resources.dra.client import CALL_S

        return [
            ClaimWait(
                ", ".join(claim.shown for claim in each.claims),
                each.driver,
                PREPARE if each.prepare else UNPREPARE,
                each.since,
                each.since + CALL_S,
            )
            for each in self._under_way.values()
            if any(uid in claim.pods for claim in each.claims)
        ]

    async def _call(
        self, driver: str, claims: Sequence[ClaimInfo], *, prepare: bool
    ) -> DriverResponse:
        """Nothing is raised."""
        client = self._drivers.get(driver)
        if client is None:
            return DriverResponse({}, [f"DRA driver {driver} is not registered on this node"])
        number = next(self._numbers)
        self._under_way[number] = _UnderWay(driver, tuple(claims), self._now(), prepare)
        try:
            found = await (client.prepare(claims) if prepare else client.unprepare(claims))
        except ClaimProblem as error:
            return DriverResponse({}, [str(error)])
        finally:
            del self._under_way[number]
        shown = {claim.uid: claim.shown for claim in claims}
        problems = [
            f"ResourceClaim {shown[uid]}: DRA driver {driver}: {error}"
            for uid, error in found.errors.items()
        ]
        return DriverResponse(found.devices, problems)

    def _driver_changed(self, driver: str) -> None:
        if self._drivers.get(driver) is not None:
            for uid in self._missing.pop(driver, ()):
                self._wake(uid)

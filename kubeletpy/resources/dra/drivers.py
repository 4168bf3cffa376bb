"""The DRA drivers of this node: each with its endpoints, one of which is used.

A driver that is being updated has two for a while. gRPC is not loaded before there is one. Source:
docs/reference/behaviour-resources.md, rv.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Protocol

from google.protobuf.message import Message

from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import cancel_tasks, run_together
from kubeletpy.metrics.resources import DraMetrics
from kubeletpy.remote.errors import Code
from kubeletpy.remote.plugin_calls import Answer, Calls, PluginCallFailed, PluginCalls
from kubeletpy.resources.dra import answers
from kubeletpy.resources.dra.answers import ClaimAnswers
from kubeletpy.resources.dra.health import MAX_DEVICES
from kubeletpy.resources.dra.model import (
    PREPARE,
    UNPREPARE,
    ClaimDevice,
    ClaimInfo,
    ClaimProblem,
    ClaimWait,
)
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused

_NAME = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_MAX_NAME = 63
MAX_ENDPOINTS = 8
"""Per driver: a rolling update has two."""


class DraDrivers:
    """The handler of type DRAPlugin."""

    def __init__(
        self,
        metrics: DraMetrics,
        calls: OpenDriver | None = None,
        heard: Callable[[str, Any], None] | None = None,
    ) -> None:
        """Args:
        calls: None: over sockets.
        heard: called with a driver's name and its report on its devices; None: none is queried.
        """
        self._heard = heard
        self._metrics = metrics
        self._calls = calls
        self._endpoints: dict[str, list[tuple[PluginInfo, DriverClient]]] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def on_change(self, notify: Callable[[str], None]) -> None:
        """Have ``notify(name)`` called when a driver's endpoint comes, goes, connects or
        disconnects."""
        self._listeners.append(notify)

    @property
    def names(self) -> list[str]:
        """The names of all registered drivers."""
        return sorted(self._endpoints)

    def get(self, name: str) -> DriverClient | None:
        """The endpoint to call a driver by: the newest that is connected, else the newest."""
        clients = [client for _, client in reversed(self._endpoints.get(name, []))]
        return next((each for each in clients if each.connected), clients[0] if clients else None)

    def connected(self, name: str) -> bool:
        """Whether any endpoint of a driver is connected."""
        return any(client.connected for _, client in self._endpoints.get(name, []))

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this driver cannot be used."""
        self._version(info)

    async def register(self, info: PluginInfo) -> None:
        """Use an endpoint from now on; raises PluginRefused."""
        from kubeletpy.resources.dra import answers

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
                self._metrics,
                self._changed,
                health=answers.health_service(info.versions),
                calls=self._calls or over_sockets,
                heard=self._heard,
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
            self._let_go(client)
        self._changed(info.name)

    async def close(self) -> None:
        """Close all endpoints."""
        for endpoints in self._endpoints.values():
            for _, client in endpoints:
                self._let_go(client)
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

    def _let_go(self, client: DriverClient) -> None:
        task = asyncio.create_task(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


# One endpoint of a DRA driver: its calls, its connection, and the health of its devices.
#
# Loaded with the first driver. Must never repeat a call. Source:
# docs/reference/behaviour-resources.md, ru, rv.

log = logging.getLogger(__name__)

CALL_S = 45.0
"""Source: docs/reference/constants.csv: DRA call."""
WATCH = "NodeWatchResources"
WATCH_AGAIN_S = 5.0
PACE_S = 0.1
"""Between two messages about devices: a driver that never stops sending is read no faster."""
NO_ANSWER = "Unknown"
PART_DEVICES = 500
"""Devices of a report that are processed in one turn of the event loop."""


class Part(Struct, frozen=True):
    """Some of the devices of a report."""

    devices: Sequence[Any]


def parts(report: Any) -> Iterator[Part]:
    """A report in parts that are processed in one turn of the event loop each.

    Devices beyond MAX_DEVICES, the most that are kept of a driver, are not processed at all.
    """
    devices = report.devices
    for at in range(0, min(len(devices), MAX_DEVICES), PART_DEVICES):
        yield Part(devices[at : min(at + PART_DEVICES, MAX_DEVICES)])


class DriverService(Calls, Protocol):
    """The service of an endpoint, over a connection that is kept."""

    async def follow(self, changed: Callable[[bool], None]) -> None:
        """Call ``changed`` with whether it is connected, now and whenever that changes."""
        ...

    def stream(self, method: str, request: Message, answer: type[Answer]) -> AsyncIterator[Answer]:
        """Yield answers for as long as the driver sends any. Raises PluginCallFailed."""
        ...


OpenDriver = Callable[[str, str, str, str], DriverService]
"""Makes the calls to an endpoint from driver, endpoint, version and health service. Raises
ValueError: it cannot be one."""


def over_sockets(driver: str, endpoint: str, version: str, health: str) -> DriverService:
    """How drivers are called, except in a simulation. ``health``: the service that reports it."""
    service = answers.SERVICES[version].DESCRIPTOR.services_by_name["DRAPlugin"]
    reports = answers.HEALTH_SERVICES[health].DESCRIPTOR.services_by_name["DRAResourceHealth"]
    return PluginCalls(endpoint, service, f"DRA driver {driver}", more=(reports,))


class DriverClient:
    """Make it inside a running event loop and ``close`` it there."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        version: str,
        metrics: DraMetrics,
        changed: Callable[[str], None],
        *,
        health: str,
        calls: OpenDriver,
        heard: Callable[[str, Any], None] | None,
    ) -> None:
        """Args:
        version: the service that prepares claims.
        health: the service that reports the health of devices.
        changed: called with the driver's name when the connection is made or lost.
        heard: called with the name and the driver's report on its devices; None: it is not queried.

        Raises:
            ValueError: it cannot be called.
        """
        self.driver, self.endpoint, self.version = driver, endpoint, version
        self.connected = False
        self._metrics = metrics
        self._changed = changed
        self.health = health
        self._calls = calls(driver, endpoint, version, health)
        self._service = answers.SERVICES[version].DESCRIPTOR.services_by_name["DRAPlugin"].full_name
        self._heard = heard
        self._may_watch = asyncio.Event()
        following = self._calls.follow(self._now_connected)
        self._tasks = [asyncio.create_task(following, name=f"DRA driver {driver}")]
        if heard is not None:
            watching = asyncio.create_task(self._watch(), name=f"health of DRA driver {driver}")
            self._tasks.append(watching)

    async def prepare(self, claims: Sequence[ClaimInfo]) -> ClaimAnswers:
        """NodePrepareResources. Raises ClaimProblem when there is no answer."""
        return await self._call(PREPARE, claims)

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> ClaimAnswers:
        """NodeUnprepareResources. Raises ClaimProblem when there is no answer."""
        return await self._call(UNPREPARE, claims)

    async def close(self) -> None:
        """Disconnect from the endpoint; calls in progress fail."""
        await cancel_tasks(self._tasks)
        await self._calls.close()

    async def _call(self, method: str, claims: Sequence[ClaimInfo]) -> ClaimAnswers:
        loop = asyncio.get_running_loop()
        start, code = loop.time(), "Canceled"
        messages = answers.SERVICES[self.version]
        request = answers.request(self.version, method, claims)
        try:
            kind = getattr(messages, f"{method}Response")
            answer = await self._calls.call(method, request, kind, CALL_S)
            code = "OK"
        except PluginCallFailed as error:
            code = error.code.reported if error.answered else NO_ANSWER
            raise ClaimProblem(str(error)) from None
        finally:
            self._metrics.called(
                self.driver, f"/{self._service}/{method}", code, loop.time() - start
            )
        return answers.claim_answers(answer, claims)

    async def _watch(self) -> None:
        """Watch the devices' health; a driver that cannot report it is retried on reconnect."""
        assert self._heard is not None
        messages = answers.HEALTH_SERVICES[self.health]
        while True:
            await self._may_watch.wait()
            try:
                request = messages.NodeWatchResourcesRequest()
                kind = messages.NodeWatchResourcesResponse
                async for answer in self._calls.stream(WATCH, request, kind):
                    for part in parts(answer):
                        self._heard(self.driver, part)
                        await asyncio.sleep(0)
                    await asyncio.sleep(PACE_S)
            except PluginCallFailed as error:
                if error.code is Code.UNIMPLEMENTED:
                    self._may_watch.clear()
                    continue
                log.debug(
                    "the driver no longer reports the health of its devices",
                    extra={"driver": self.driver, "why": str(error), "again_in": WATCH_AGAIN_S},
                )
            await asyncio.sleep(WATCH_AGAIN_S)

    def _now_connected(self, connected: bool) -> None:
        if connected:
            self._may_watch.set()
        if connected is not self.connected:
            self.connected = connected
            self._changed(self.driver)


# Calls DRA drivers to prepare and unprepare claims, and records what pods wait for.
#
# Must never decide for which claims a driver is called: :mod:`.claim_manager` does.


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
            *(
                self._call(driver, requested, prepare=prepare)
                for driver, requested in claims.items()
            )
        )
        return dict(zip(claims, found, strict=True))

    def waits(self, uid: str) -> list[ClaimWait]:
        """The calls that a pod waits for."""
        if not self._under_way:
            return []

        return [
            ClaimWait(
                ", ".join(claim.reported for claim in each.claims),
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
        reported = {claim.uid: claim.reported for claim in claims}
        problems = [
            f"ResourceClaim {reported[uid]}: DRA driver {driver}: {error}"
            for uid, error in found.errors.items()
        ]
        return DriverResponse(found.devices, problems)

    def _driver_changed(self, driver: str) -> None:
        if self._drivers.get(driver) is not None:
            for uid in self._missing.pop(driver, ()):
                self._wake(uid)

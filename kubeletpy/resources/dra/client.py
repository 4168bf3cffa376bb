"""One endpoint of a DRA driver: its calls, its connection, and the health of its devices.

It is apart from :mod:`.drivers` because it loads the messages of drivers; the first driver loads
it. No call is repeated. Source: docs/reference/behaviour-resources.md, ru, rv.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.metrics.resources import DraMetrics
from kubeletpy.remote.errors import Code
from kubeletpy.remote.plugin_calls import PluginCallFailed, PluginCalls
from kubeletpy.resources.dra import answers
from kubeletpy.resources.dra.answers import ClaimAnswers
from kubeletpy.resources.dra.health import MAX_DEVICES
from kubeletpy.resources.dra.model import CALL_S, ClaimInfo, ClaimProblem

log = logging.getLogger(__name__)

WATCH = "NodeWatchResources"
WATCH_AGAIN_S = 5.0
PACE_S = 0.1
"""Between two messages about devices: a driver that never stops sending is read no faster."""
NO_ANSWER = "Unknown"
PART_DEVICES = 500
"""Devices of a report that are processed in one turn of the event loop."""


class ReportPart(Struct, frozen=True):
    """Some of the devices of a report."""

    devices: Sequence[Any]


def report_parts(report: Any) -> Iterator[ReportPart]:
    """Split a report into parts that are processed in one turn of the event loop each.

    Devices beyond MAX_DEVICES, the most that are kept of a driver, are not processed at all.
    """
    devices = report.devices
    for at in range(0, min(len(devices), MAX_DEVICES), PART_DEVICES):
        yield ReportPart(devices[at : min(at + PART_DEVICES, MAX_DEVICES)])


OpenDriver = Callable[[str, str, str, str], PluginCalls]
"""Makes the calls to an endpoint from driver, endpoint, version and health service.

Raises ValueError for an endpoint that cannot be called.
"""


def over_sockets(driver: str, endpoint: str, version: str, health: str) -> PluginCalls:
    """Call a driver over its socket. ``health``: the service that reports the devices' health."""
    service = answers.SERVICES[version].DESCRIPTOR.services_by_name["DRAPlugin"]
    reports = answers.HEALTH_SERVICES[health].DESCRIPTOR.services_by_name["DRAResourceHealth"]
    return PluginCalls(endpoint, service, f"DRA driver {driver}", more=(reports,))


class DriverClient(Component):
    """Calls one endpoint, follows its connection, and watches the health of its devices.

    Make it inside a running event loop and ``close`` it there.
    """

    driver: str
    endpoint: str
    version: str
    """The service that prepares claims."""
    metrics: DraMetrics
    changed: Callable[[str], None]
    """Called with the driver's name when the connection is made or lost."""
    health: str
    """The service that reports the health of devices."""
    calls: OpenDriver
    on_report: Callable[[str, Any], None] | None
    """Called with the name and the driver's report on its devices; None: the health is not watched.
"""

    def __post_init__(self) -> None:
        """Connect to an endpoint.

        Raises:
        ValueError: the endpoint cannot be called.
        """
        self.connected = False
        self._calls = self.calls(self.driver, self.endpoint, self.version, self.health)
        self._service = (
            answers.SERVICES[self.version].DESCRIPTOR.services_by_name["DRAPlugin"].full_name
        )
        self._may_watch = asyncio.Event()
        following = self._calls.follow(self._now_connected)
        self._tasks = [asyncio.create_task(following, name=f"DRA driver {self.driver}")]
        if self.on_report is not None:
            watching = asyncio.create_task(
                self._watch(), name=f"health of DRA driver {self.driver}"
            )
            self._tasks.append(watching)

    async def close(self) -> None:
        """Disconnect from the endpoint; calls in progress fail."""
        await cancel_tasks(self._tasks)
        await self._calls.close()

    async def call(self, method: str, claims: Sequence[ClaimInfo]) -> ClaimAnswers:
        """Have claims prepared or unprepared. Raises ClaimProblem when there is no answer."""
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
            self.metrics.called(
                self.driver, f"/{self._service}/{method}", code, loop.time() - start
            )
        return answers.claim_answers(answer, claims)

    async def _watch(self) -> None:
        """Watch the devices' health; a driver that cannot report it is retried on reconnect."""
        assert self.on_report is not None
        messages = answers.HEALTH_SERVICES[self.health]
        while True:
            await self._may_watch.wait()
            try:
                request = messages.NodeWatchResourcesRequest()
                kind = messages.NodeWatchResourcesResponse
                async for answer in self._calls.stream(WATCH, request, kind):
                    for part in report_parts(answer):
                        self.on_report(self.driver, part)
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
            self.changed(self.driver)

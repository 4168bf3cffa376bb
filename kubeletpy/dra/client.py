"""One endpoint of a DRA driver: its two calls, and whether it is connected.

Loaded with the first driver. Must never repeat a call. Source:
docs/reference/behaviour-resources.md, ru, rv.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from kubeletpy.dra import answers
from kubeletpy.dra.answers import ClaimAnswers
from kubeletpy.dra.claims import ClaimProblem
from kubeletpy.dra.model import ClaimInfo
from kubeletpy.remote.plugin_calls import Calls, PluginCallFailed, PluginCalls

CALL_S = 45.0
"""Source: docs/reference/constants.csv: DRA call."""
PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
NO_ANSWER = "Unknown"


class CallTimes(Protocol):
    """Where calls are counted."""

    def called(self, driver: str, method: str, code: str, seconds: float) -> None:
        """A call ended; ``method`` is its full name, ``code`` gRPC's name of its status."""
        ...


class DriverCalls(Calls, Protocol):
    """The service of an endpoint, over a connection that is kept."""

    async def follow(self, changed: Callable[[bool], None]) -> None:
        """Call ``changed`` with whether it is connected, now and whenever that changes."""
        ...


class OpenDriver(Protocol):
    """How an endpoint is called. Raises ValueError: it cannot be one."""

    def __call__(self, driver: str, endpoint: str, version: str) -> DriverCalls: ...


def over_sockets(driver: str, endpoint: str, version: str) -> DriverCalls:
    """The way drivers are called, but in a simulation."""
    service = answers.SERVICES[version].DESCRIPTOR.services_by_name["DRAPlugin"]
    return PluginCalls(endpoint, service, f"DRA driver {driver}")


class DriverClient:
    """Make it inside a running event loop and ``close`` it there."""

    def __init__(
        self,
        driver: str,
        endpoint: str,
        version: str,
        times: CallTimes,
        changed: Callable[[str], None],
        *,
        calls: OpenDriver = over_sockets,
    ) -> None:
        """``changed(driver)`` is called when the connection is made or lost. Raises ValueError."""
        self.driver, self.endpoint, self.version = driver, endpoint, version
        self.connected = False
        self._times = times
        self._changed = changed
        self._calls = calls(driver, endpoint, version)
        self._service = answers.SERVICES[version].DESCRIPTOR.services_by_name["DRAPlugin"].full_name
        self._following = asyncio.create_task(
            self._calls.follow(self._now_connected), name=f"DRA driver {driver}"
        )

    async def prepare(self, claims: Sequence[ClaimInfo]) -> ClaimAnswers:
        """NodePrepareResources. Raises ClaimProblem when there is no answer at all."""
        return await self._call(PREPARE, claims)

    async def unprepare(self, claims: Sequence[ClaimInfo]) -> ClaimAnswers:
        """NodeUnprepareResources. Raises ClaimProblem when there is no answer at all."""
        return await self._call(UNPREPARE, claims)

    async def close(self) -> None:
        """Let go of the endpoint; calls under way fail."""
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
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
            code = error.code.shown if error.answered else NO_ANSWER
            raise ClaimProblem(str(error)) from None
        finally:
            self._times.called(self.driver, f"/{self._service}/{method}", code, loop.time() - start)
        return answers.read(answer, claims)

    def _now_connected(self, connected: bool) -> None:
        if connected is not self.connected:
            self.connected = connected
            self._changed(self.driver)

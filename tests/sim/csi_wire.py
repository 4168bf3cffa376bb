"""The agent's end of the wire to simulated CSI drivers.

One per life of the agent; a dead life's makes no call and answers none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from kubeletpy.remote.errors import Code
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.resources.plugins.model import Conversation, PluginInfo, PluginRefused, Stamp
from tests.sim.client import Step
from tests.sim.csi_drivers import Refused, SimDriver

Answer = TypeVar("Answer", bound=Message)


class SimDriverCalls:
    """One life's connection to a driver (:class:`kubeletpy.remote.plugin_calls.Calls`)."""

    def __init__(self, driver: SimDriver, step: Step) -> None:
        self._driver = driver
        self._step = step
        self._closed = False

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        within: float,
        *,
        secrets: Iterable[str] = (),
    ) -> Answer:
        """Call the driver."""
        call = f"{method} of driver {self._driver.name}"
        if self._closed:
            raise PluginCallFailed(Code.CANCELLED, call, "closed", answered=False)
        self._step("call", call)
        try:
            async with asyncio.timeout(within):
                found = await self._driver.answer_call(method, request)
        except TimeoutError:
            raise PluginCallFailed(
                Code.DEADLINE_EXCEEDED, call, "no answer", answered=False
            ) from None
        except Refused as refused:
            self._step("answer", call)
            raise PluginCallFailed(refused.code, call, str(refused)) from None
        self._step("answer", call)
        return answer.FromString(found.SerializeToString())

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True


class Registrable(Protocol):
    """A driver that has a registration socket."""

    name: str
    up: bool

    @property
    def kind(self) -> str: ...

    @property
    def versions(self) -> tuple[str, ...]: ...


class SimRegistrations:
    """One life's way to the drivers' registration services."""

    def __init__(self, drivers: Mapping[str, Registrable], step: Step) -> None:
        self._drivers = drivers
        self._step = step

    @asynccontextmanager
    async def open(self, socket: str, stamp: Stamp) -> AsyncIterator[Conversation]:
        """Connect to a registration socket."""
        driver = self._drivers[Path(socket).stem]
        await asyncio.sleep(0.001)
        if not driver.up:
            raise PluginRefused("nobody listens")
        yield _Conversation(driver, socket, stamp, self._step)


class _Conversation:
    def __init__(self, driver: Registrable, socket: str, stamp: Stamp, step: Step) -> None:
        self._driver = driver
        self._info = PluginInfo(driver.kind, driver.name, socket, driver.versions, socket, stamp)
        self._step = step

    async def info(self) -> PluginInfo:
        """The driver's name, endpoint and versions."""
        await self._call("GetInfo")
        return self._info

    async def notify(self, *, registered: bool, error: str = "") -> None:
        """Notify the driver whether it was registered."""
        await self._call("NotifyRegistrationStatus")

    async def _call(self, method: str) -> None:
        self._step("call", f"{method} of driver {self._driver.name}")
        await asyncio.sleep(0.001)
        if not self._driver.up:
            raise PluginRefused("connection lost")
        self._step("answer", f"{method} of driver {self._driver.name}")

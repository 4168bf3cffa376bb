"""A node's claims with drivers in the same process, for tests on virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import NotFound
from kubeletpy.kubeapi.protocol import Resource
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.errors import Code
from kubeletpy.remote.plugin_calls import PluginCallFailed, PluginCalls
from kubeletpy.resources.dra.claim_manager import ClaimManager, ClaimState
from kubeletpy.resources.dra.drivers import DraDrivers
from kubeletpy.resources.dra.model import ClaimProblem, Claims
from kubeletpy.resources.plugins.model import DRA, PluginInfo
from tests.dra_driver.services import Services
from tests.kit.pods import pod_object

Answer = TypeVar("Answer", bound=Message)


class DriverInProcess:
    """Answers the calls of agents; ``wait`` is awaited before each.

    Attributes:
        reports: its next health reports: a message, or None for the end of the stream.
        tells_health: whether it can report health.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.services = Services(name, **options)
        self.wait: Callable[[str], Any] | None = None
        self.up = True
        self.reports: asyncio.Queue[Message | None] = asyncio.Queue()
        self.tells_health = True
        self.watched = 0

    def info(self, endpoint: str = "/e", *versions: str) -> PluginInfo:
        """The registration of the driver."""
        found = versions or (self.services.version,)
        return PluginInfo(DRA, self.services.name, endpoint, found, f"{endpoint}-reg", (1, 1))


class _Calls(PluginCalls):
    def __init__(self, driver: DriverInProcess) -> None:
        self._driver = driver

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        within: float,
        *,
        secrets: Iterable[str] = (),
    ) -> Answer:
        call = f"{method} of DRA driver {self._driver.services.name}"
        try:
            async with asyncio.timeout(within):
                if self._driver.wait is not None:
                    await self._driver.wait(method)
                if not self._driver.up:
                    raise PluginCallFailed(Code.UNAVAILABLE, call, "down", answered=False)
                found = getattr(self._driver.services, method)(request)
        except TimeoutError:
            raise PluginCallFailed(
                Code.DEADLINE_EXCEEDED, call, "no answer", answered=False
            ) from None
        return answer.FromString(found.SerializeToString())

    async def follow(self, changed: Callable[[bool], None]) -> None:
        changed(self._driver.up)

    async def stream(
        self, method: str, request: Message, answer: type[Answer]
    ) -> AsyncIterator[Answer]:
        call = f"{method} of DRA driver {self._driver.services.name}"
        self._driver.watched += 1
        if not self._driver.tells_health:
            raise PluginCallFailed(Code.UNIMPLEMENTED, call, "unknown service")
        while (report := await self._driver.reports.get()) is not None:
            yield answer.FromString(report.SerializeToString())

    async def close(self) -> None:
        pass


class Api:
    """ResourceClaims by name."""

    def __init__(self) -> None:
        self.claims: dict[str, JSON] = {}

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JSON:
        assert resource.plural == "resourceclaims"
        if name not in self.claims:
            raise NotFound(f'resourceclaims "{name}" not found')
        return self.claims[name]

    def allocate(
        self,
        name: str,
        pods: Iterable[str],
        *drivers: str,
        uid: str = "",
        skips: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Stores a claim reserved for the pods; ``skips``: calls that drivers do not get."""
        skipped = skips or {}
        results = [
            {"driver": driver, "request": "r0", "skipNodeOperations": list(skipped.get(driver, ()))}
            for driver in drivers
        ]
        self.claims[name] = {
            "metadata": {"name": name, "uid": uid or f"{name}-uid"},
            "status": {
                "reservedFor": [{"uid": pod} for pod in pods],
                "allocation": {"devices": {"results": results}},
            },
        }


class Node:
    """The API, drivers and state file, which outlive an agent, and one agent at a time."""

    def __init__(self, root: Path, *drivers: DriverInProcess) -> None:
        self.path = root / "dra_manager_state"
        self.api = Api()
        self.by_name = {driver.services.name: driver for driver in drivers}
        self.woken: list[str] = []
        self.may_skip = True
        self.start()

    def start(self) -> None:
        """Starts a new agent; no drivers are registered with it yet."""
        self.metrics = Metrics()
        dra = self.metrics.dra

        def show(claims: Claims) -> None:
            drivers = (driver for claim in claims.values() for driver in claim.drivers)
            dra.show(Counter(drivers), len(claims))

        self.drivers = DraDrivers(dra, lambda name, *_: _Calls(self.by_name[name]))
        self.manager = ClaimManager(
            cast(Any, self.api),
            self.drivers,
            ClaimState(self.path, show),
            dra,
            may_skip=self.may_skip,
            wake=self.woken.append,
        )

    async def register(self) -> None:
        """Registers all drivers."""
        for driver in self.by_name.values():
            await self.drivers.register(driver.info())

    async def problem(self, pod: Pod) -> str:
        """Returns the error that prepare raises; empty: none."""
        try:
            await self.manager.prepare(pod)
        except ClaimProblem as error:
            return str(error)
        return ""

    def calls(self) -> list[Any]:
        """Calls to all drivers."""
        return [call for driver in self.by_name.values() for call in driver.services.history]


def user(name: str, *claims: str) -> Pod:
    """A pod whose container has all its claims."""
    entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    obj = pod_object(name, resourceClaims=entries)
    obj["spec"]["containers"][0]["resources"] = {"claims": [{"name": each} for each in claims]}
    return Pod(obj)

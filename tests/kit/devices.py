"""Simulated device plugins: no sockets, no gRPC; each test sets what they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from google.protobuf.message import Message

from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import deviceplugin_pb2 as pb
from kubeletpy.remote.plugin_calls import PluginCallFailed


class SimPlugin:
    """One plugin; listens until it dies."""

    def __init__(
        self,
        *ids: str,
        prefers: tuple[str, ...] = (),
        pre_start: bool = False,
        nodes: Mapping[str, int] | None = None,
    ) -> None:
        """``nodes``: NUMA nodes of the devices that have one."""
        self.devices = dict.fromkeys(ids, "Healthy")
        self.prefers = prefers
        self.pre_start = pre_start
        self.nodes = nodes or {}
        self.alive = True
        self.allocated: list[tuple[str, ...]] = []
        self.started: list[tuple[str, ...]] = []
        self.requested: list[pb.ContainerPreferredAllocationRequest] = []
        self.faults: dict[str, Callable[[], Any]] = {}
        """Replacements by method: an awaitable is awaited, an exception is raised."""
        self._changed = asyncio.Event()

    def now(self, **devices: str) -> None:
        """Replaces its devices."""
        self.devices = devices
        self._wake()

    def die(self) -> None:
        """Ends the plugin and its stream."""
        self.alive = False
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # -- PluginCalls -----------------------------------------------------------------------------

    async def connect(self, within: float) -> None:
        if not self.alive:
            raise failed("connecting", Code.UNAVAILABLE)

    async def call(
        self, method: str, request: Any, answer: Any, within: float, *, secrets: Iterable[str] = ()
    ) -> Any:
        if not self.alive:
            raise failed(method, Code.UNAVAILABLE)
        try:
            async with asyncio.timeout(within):
                return await self._answer(method, request)
        except TimeoutError:
            raise failed(method, Code.DEADLINE_EXCEEDED) from None

    async def _answer(self, method: str, request: Any) -> Message:
        if fault := self.faults.get(method):
            outcome = fault()
            if asyncio.iscoroutine(outcome):
                outcome = await outcome
            if isinstance(outcome, Exception):
                raise outcome
            if outcome is not None:
                assert isinstance(outcome, Message)
                return outcome
        match method:
            case "GetDevicePluginOptions":
                return pb.DevicePluginOptions(
                    pre_start_required=self.pre_start,
                    get_preferred_allocation_available=bool(self.prefers),
                )
            case "GetPreferredAllocation":
                self.requested.extend(request.container_requests)
                liked = pb.ContainerPreferredAllocationResponse(deviceIDs=self.prefers)
                return pb.PreferredAllocationResponse(container_responses=[liked])
            case "Allocate":
                ids = tuple(request.container_requests[0].devices_ids)
                self.allocated.append(ids)
                supplied = pb.ContainerAllocateResponse(envs={"DEVICES": ",".join(ids)})
                return pb.AllocateResponse(container_responses=[supplied])
            case _:
                self.started.append(tuple(request.devices_ids))
                return pb.PreStartContainerResponse()

    async def stream(self, method: str, request: Any, answer: Any) -> AsyncIterator[Any]:
        while self.alive:
            changed = self._changed
            listed = [
                pb.Device(ID=each, health=how, topology=self._topology(each))
                for each, how in self.devices.items()
            ]
            yield pb.ListAndWatchResponse(devices=listed)
            await changed.wait()
        raise failed(method, Code.UNAVAILABLE)

    def _topology(self, device: str) -> pb.TopologyInfo | None:
        if device not in self.nodes:
            return None
        return pb.TopologyInfo(nodes=[pb.NUMANode(ID=self.nodes[device])])

    async def close(self) -> None:
        """Nothing is open."""


def failed(method: str, code: Code, text: str = "broken") -> PluginCallFailed:
    """A failed call."""
    return PluginCallFailed(code, f"{method} of device plugin", text)


async def hang() -> None:
    """Never answers."""
    await asyncio.Event().wait()

"""The Node service of one CSI driver: one call each, with deadlines and typed failures.

Loaded with the first driver. A driver's capabilities are queried once and cached for a minute, or
until a call fails. Must never repeat a call, nor log or raise a secret. Source:
docs/reference/behaviour-storage.md, sk, sg.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from kubeletpy.base.api import types as api
from kubeletpy.metrics.volumes import NO_ANSWER, CsiMetrics
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.remote.plugin_calls import Calls, PluginCallFailed, PluginCalls
from kubeletpy.volumes.claims.model import (
    ExpansionFailed,
    ExpansionProblem,
    FailureOutcome,
    OperationFailed,
    VolumeStats,
)
from kubeletpy.volumes.csi import messages
from kubeletpy.volumes.csi.messages import BadCsiAnswer, CsiVolume, NodeInfo, VolumeAccess

__all__ = ["CsiVolume", "NodeClient", "VolumeAccess"]

Answer = TypeVar("Answer", bound=Message)
Made = TypeVar("Made")

OPERATION_S = 120.0
"""The deadline for all calls of one operation. Source: docs/reference/behaviour-storage.md, su."""
CAPABILITIES_S = 60.0
STATS_S = 30.0

_RPC = csi.NodeServiceCapability.RPC
_TOKENS = "serviceAccount.tokens"
_SECRET_LENGTH = 4
"""Shorter values are not searched for in errors: they would match everywhere."""


class NodeClient:
    """Calls the Node service of one driver.

    Make it inside a running event loop and ``close`` it there.
    """

    def __init__(
        self, driver: str, endpoint: str, metrics: CsiMetrics, calls: Calls | None = None
    ) -> None:
        """``calls`` None: over the socket at ``endpoint``. Raises EndpointError."""
        service = csi.DESCRIPTOR.services_by_name["Node"]
        self.driver = driver
        self._calls = calls or PluginCalls(endpoint, service, f"driver {driver}")
        self._metrics = metrics
        self._capabilities: frozenset[int] = frozenset()
        self._capabilities_until = float("-inf")

    async def close(self) -> None:
        """Close the connection; calls in progress fail."""
        await self._calls.close()

    async def info(self) -> NodeInfo:
        """The node as the driver sees it. Raises OperationFailed."""
        request = csi.NodeGetInfoRequest()
        answer = await self._call(request, csi.NodeGetInfoResponse, self.until())
        return self._read(messages.node_info, answer)

    async def stages(self, until: float) -> bool:
        """Whether volumes are staged. Raises OperationFailed."""
        return _RPC.STAGE_UNSTAGE_VOLUME in await self._can(until)

    async def applies_group(self, until: float) -> bool:
        """Whether the driver applies fsGroup itself. Raises OperationFailed."""
        return _RPC.VOLUME_MOUNT_GROUP in await self._can(until)

    async def stage(self, volume: CsiVolume, staging: str, until: float) -> None:
        """Stage a volume for the node (NodeStageVolume). Raises OperationFailed."""
        multi = _RPC.SINGLE_NODE_MULTI_WRITER in await self._can(until)
        request = self._made(lambda: messages.stage(volume, staging, multi_writer=multi))
        await self._call(request, csi.NodeStageVolumeResponse, until, volume)

    async def publish(
        self, volume: CsiVolume, staging: str, target: str, *, read_only: bool, until: float
    ) -> None:
        """Publish a volume to a pod (NodePublishVolume). Raises OperationFailed.

        ``staging`` is empty if the volume is not staged.
        """
        multi = _RPC.SINGLE_NODE_MULTI_WRITER in await self._can(until)
        request = self._made(
            lambda: messages.publish(
                volume, staging, target, read_only=read_only, multi_writer=multi
            )
        )
        await self._call(request, csi.NodePublishVolumeResponse, until, volume)

    async def unpublish(self, handle: str, target: str, until: float) -> None:
        """Unpublish a volume from a pod (NodeUnpublishVolume). Raises OperationFailed."""
        request = csi.NodeUnpublishVolumeRequest(volume_id=handle, target_path=target)
        await self._call(request, csi.NodeUnpublishVolumeResponse, until)

    async def unstage(self, handle: str, staging: str, until: float) -> None:
        """Unstage a volume from the node (NodeUnstageVolume). Raises OperationFailed."""
        request = csi.NodeUnstageVolumeRequest(volume_id=handle, staging_target_path=staging)
        await self._call(request, csi.NodeUnstageVolumeResponse, until)

    async def expand(self, volume: CsiVolume, path: str, staging: str, size: int) -> int:
        """NodeExpandVolume to ``size`` bytes; returns the new size. Raises ExpansionFailed."""
        until, call = self.until(), f"NodeExpandVolume of driver {self.driver}"
        try:
            can = await self._can(until)
            if _RPC.EXPAND_VOLUME not in can:
                problem = ExpansionProblem.UNSUPPORTED
                raise ExpansionFailed(problem, f"driver {self.driver} does not expand", call=call)
            multi = _RPC.SINGLE_NODE_MULTI_WRITER in can
            request = self._made(
                lambda: messages.expand(volume, path, staging, size, multi_writer=multi)
            )
            answer = await self._timed_call(request, csi.NodeExpandVolumeResponse, until, volume)
        except PluginCallFailed as error:
            problem = messages.expansion_problem(error.code, answered=error.answered)
            raise ExpansionFailed(problem, str(error), call=error.call) from None
        except ExpansionFailed:
            raise
        except OperationFailed as error:
            raise ExpansionFailed(ExpansionProblem.OTHER, error.message, call=call) from None
        return max(answer.capacity_bytes, size)

    async def stats(self, handle: str, path: str) -> VolumeStats | None:
        """NodeGetVolumeStats; None: the driver does not report it. Raises OperationFailed."""
        until = asyncio.get_running_loop().time() + STATS_S
        can = await self._can(until)
        if _RPC.GET_VOLUME_STATS not in can:
            return None
        request = csi.NodeGetVolumeStatsRequest(volume_id=handle, volume_path=path)
        answer = await self._call(request, csi.NodeGetVolumeStatsResponse, until)
        health = _RPC.VOLUME_CONDITION in can
        return self._read(lambda found: messages.volume_stats(found, condition=health), answer)

    async def health(
        self, handle: str, path: str, staging: str
    ) -> list[api.VolumeHealthCondition] | None:
        """NodeGetVolumeHealth; None: the driver does not report it. Raises OperationFailed.

        ``staging`` is sent only to drivers that stage volumes.
        """
        until = asyncio.get_running_loop().time() + STATS_S
        can = await self._can(until)
        if _RPC.GET_VOLUME_HEALTH not in can:
            return None
        request = csi.NodeGetVolumeHealthRequest(
            volume_id=handle,
            volume_publish_path=path,
            staging_target_path=staging if _RPC.STAGE_UNSTAGE_VOLUME in can else "",
        )
        answer = await self._call(request, csi.NodeGetVolumeHealthResponse, until)
        return messages.volume_health(answer)

    async def storage_health(self) -> list[api.JSON] | None:
        """NodeGetStorageHealth; None: the driver does not report it. Raises OperationFailed."""
        until = asyncio.get_running_loop().time() + STATS_S
        if _RPC.GET_STORAGE_HEALTH not in await self._can(until):
            return None
        request = csi.NodeGetStorageHealthRequest()
        answer = await self._call(request, csi.NodeGetStorageHealthResponse, until)
        return self._read(messages.storage_health, answer)

    def until(self) -> float:
        """The deadline of an operation that starts now (event-loop time)."""
        return asyncio.get_running_loop().time() + OPERATION_S

    async def _can(self, until: float) -> frozenset[int]:
        """The driver's capabilities; a failure to get them implies nothing for any volume."""
        if asyncio.get_running_loop().time() < self._capabilities_until:
            return self._capabilities
        request, kind = csi.NodeGetCapabilitiesRequest(), csi.NodeGetCapabilitiesResponse
        try:
            answer = await self._timed_call(request, kind, until)
        except PluginCallFailed as error:
            raise OperationFailed(FailureOutcome.TRANSIENT, str(error), call=error.call) from None
        self._capabilities = messages.capabilities(answer)
        self._capabilities_until = asyncio.get_running_loop().time() + CAPABILITIES_S
        return self._capabilities

    async def _call(
        self, request: Message, kind: type[Answer], until: float, volume: CsiVolume | None = None
    ) -> Answer:
        """Make a call, whose name is that of its answer. Raises OperationFailed."""
        try:
            return await self._timed_call(request, kind, until, volume)
        except PluginCallFailed as error:
            outcome = messages.outcome_of(error.code, answered=error.answered)
            raise OperationFailed(outcome, str(error), call=error.call) from None

    async def _timed_call(
        self, request: Message, kind: type[Answer], until: float, volume: CsiVolume | None = None
    ) -> Answer:
        """Make a call and record its code and duration. Raises PluginCallFailed.

        ``volume``: its secrets, and tokens that are passed where others can see them, are hidden.
        """
        loop, method = asyncio.get_running_loop(), _method(kind.DESCRIPTOR.name)
        start, code, hidden = loop.time(), "Canceled", list[str]()
        if volume is not None:
            tokens = (v for k, v in volume.context.items() if k.endswith(_TOKENS))
            hidden = [v for v in (*volume.secrets.values(), *tokens) if len(v) >= _SECRET_LENGTH]
        try:
            within = max(until - start, 0.001)
            answer = await self._calls.call(method, request, kind, within, secrets=hidden)
            code = "OK"
            return answer
        except PluginCallFailed as error:
            code = error.code.reported if error.answered else NO_ANSWER
            self._capabilities_until = float("-inf")  # the next to answer may be another version
            raise
        finally:
            seconds, migrated = loop.time() - start, volume is not None and volume.migrated
            self._metrics.called(self.driver, method, code, seconds, migrated=migrated)

    def _made(self, make: Callable[[], Made]) -> Made:
        try:
            return make()
        except ValueError as error:  # the object from the API is no valid CSI request
            raise OperationFailed(FailureOutcome.FINAL, f"driver {self.driver}: {error}") from None

    def _read(self, read: Callable[[Answer], Made], answer: Answer) -> Made:
        call = f"{_method(answer.DESCRIPTOR.name)} of driver {self.driver}"
        try:
            return read(answer)
        except BadCsiAnswer as error:
            text = f"{call}: the answer cannot be used: {error}"
            raise OperationFailed(FailureOutcome.UNCERTAIN, text, call=call) from None


def _method(answer: str) -> str:
    """The name of a call, from that of its answer."""
    return answer.removesuffix("Response")

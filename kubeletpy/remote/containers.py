"""The CRI calls about containers over gRPC. Must never decide when to make them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence

from kubeletpy.remote import verify
from kubeletpy.remote.calls import Calls
from kubeletpy.remote.generated import api_pb2 as cri


class RemoteContainers:
    """The container part of remote.protocol.RuntimeService over the calls of "RuntimeService"."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create_container(
        self,
        pod_sandbox_id: str,
        config: cri.ContainerConfig,
        sandbox_config: cri.PodSandboxConfig,
    ) -> str:
        """See protocol."""
        answer = await self._calls.unary(
            "CreateContainer",
            cri.CreateContainerRequest(
                pod_sandbox_id=pod_sandbox_id, config=config, sandbox_config=sandbox_config
            ),
            cri.CreateContainerResponse,
            target=f"{config.metadata.name} in sandbox {pod_sandbox_id}",
            check=lambda answer: verify.unset(answer, "container_id"),
        )
        return answer.container_id

    async def start_container(self, container_id: str) -> None:
        """See protocol."""
        await self._calls.unary(
            "StartContainer",
            cri.StartContainerRequest(container_id=container_id),
            cri.StartContainerResponse,
            target=container_id,
        )

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """See protocol."""
        await self._calls.unary(
            "StopContainer",
            cri.StopContainerRequest(container_id=container_id, timeout=timeout),
            cri.StopContainerResponse,
            own=timeout,
            target=container_id,
        )

    async def remove_container(self, container_id: str) -> None:
        """See protocol."""
        await self._calls.unary(
            "RemoveContainer",
            cri.RemoveContainerRequest(container_id=container_id),
            cri.RemoveContainerResponse,
            target=container_id,
        )

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        """See protocol."""
        return await self._calls.unary(
            "ContainerStatus",
            cri.ContainerStatusRequest(container_id=container_id, verbose=verbose),
            cri.ContainerStatusResponse,
            target=container_id,
            check=verify.wrong_container_status,
        )

    async def update_container_resources(
        self,
        container_id: str,
        linux: cri.LinuxContainerResources,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """See protocol."""
        await self._calls.unary(
            "UpdateContainerResources",
            cri.UpdateContainerResourcesRequest(
                container_id=container_id, linux=linux, annotations=annotations
            ),
            cri.UpdateContainerResourcesResponse,
            target=container_id,
        )

    async def reopen_container_log(self, container_id: str) -> None:
        """See protocol."""
        await self._calls.unary(
            "ReopenContainerLog",
            cri.ReopenContainerLogRequest(container_id=container_id),
            cri.ReopenContainerLogResponse,
            target=container_id,
        )

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """See protocol."""
        seconds = max(timeout, int(self._calls.request_timeout))
        await self._calls.unary(
            "CheckpointContainer",
            cri.CheckpointContainerRequest(
                container_id=container_id, location=location, timeout=seconds
            ),
            cri.CheckpointContainerResponse,
            own=timeout,
            target=container_id,
        )

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        """See protocol. The runtime counts whole seconds: a fraction is rounded up."""
        return await self._calls.unary(
            "ExecSync",
            cri.ExecSyncRequest(container_id=container_id, cmd=cmd, timeout=math.ceil(timeout)),
            cri.ExecSyncResponse,
            own=timeout,
            target=container_id,
        )

    async def exec(self, request: cri.ExecRequest) -> str:
        """See protocol."""
        answer = await self._calls.unary(
            "Exec",
            request,
            cri.ExecResponse,
            target=request.container_id,
            check=lambda answer: verify.unset(answer, "url"),
        )
        return answer.url

    async def attach(self, request: cri.AttachRequest) -> str:
        """See protocol."""
        answer = await self._calls.unary(
            "Attach",
            request,
            cri.AttachResponse,
            target=request.container_id,
            check=lambda answer: verify.unset(answer, "url"),
        )
        return answer.url

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        """See protocol."""
        async for event in self._calls.stream(
            "GetContainerEvents", cri.GetEventsRequest(), cri.ContainerEventResponse
        ):
            yield event

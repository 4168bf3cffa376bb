"""The CRI calls about sandboxes over gRPC. Must never decide when to make them."""

from __future__ import annotations

import asyncio

from kubeletpy.remote import verify
from kubeletpy.remote.calls import CallMetrics, Calls
from kubeletpy.remote.generated import api_pb2 as cri


class RemoteSandboxes:
    """The sandbox part of remote.protocol.RuntimeService over the calls of "RuntimeService"."""

    def __init__(self, calls: Calls, metrics: CallMetrics) -> None:
        self._calls = calls
        self._sandbox_metrics = metrics

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        """See protocol."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        failed = True
        try:
            answer = await self._calls.unary(
                "RunPodSandbox",
                cri.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler),
                cri.RunPodSandboxResponse,
                target=f"{config.metadata.namespace}/{config.metadata.name}",
                check=lambda answer: verify.unset(answer, "pod_sandbox_id"),
            )
            failed = False
            return answer.pod_sandbox_id
        finally:
            self._sandbox_metrics.sandbox_done(runtime_handler, loop.time() - start, failed)

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """See protocol."""
        await self._calls.unary(
            "StopPodSandbox",
            cri.StopPodSandboxRequest(pod_sandbox_id=pod_sandbox_id),
            cri.StopPodSandboxResponse,
            target=pod_sandbox_id,
        )

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """See protocol."""
        await self._calls.unary(
            "RemovePodSandbox",
            cri.RemovePodSandboxRequest(pod_sandbox_id=pod_sandbox_id),
            cri.RemovePodSandboxResponse,
            target=pod_sandbox_id,
        )

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> cri.PodSandboxStatusResponse:
        """See protocol."""
        return await self._calls.unary(
            "PodSandboxStatus",
            cri.PodSandboxStatusRequest(pod_sandbox_id=pod_sandbox_id, verbose=verbose),
            cri.PodSandboxStatusResponse,
            target=pod_sandbox_id,
            check=verify.wrong_sandbox_status,
        )

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: cri.LinuxContainerResources | None,
        resources: cri.LinuxContainerResources | None,
    ) -> None:
        """See protocol."""
        await self._calls.unary(
            "UpdatePodSandboxResources",
            cri.UpdatePodSandboxResourcesRequest(
                pod_sandbox_id=pod_sandbox_id, overhead=overhead, resources=resources
            ),
            cri.UpdatePodSandboxResourcesResponse,
            target=pod_sandbox_id,
        )

    async def port_forward(self, request: cri.PortForwardRequest) -> str:
        """See protocol."""
        answer = await self._calls.unary(
            "PortForward",
            request,
            cri.PortForwardResponse,
            target=request.pod_sandbox_id,
            check=lambda answer: verify.unset(answer, "url"),
        )
        return answer.url

"""The CRI calls about stats and metrics over gRPC. Must never interpret the numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kubeletpy.remote.calls import Calls
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.lists import MOST_STREAMED


class RemoteStats:
    """The stats and metrics part of remote.protocol.RuntimeService."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def container_stats(self, container_id: str) -> cri.ContainerStats:
        """See protocol."""
        answer = await self._calls.unary(
            "ContainerStats",
            cri.ContainerStatsRequest(container_id=container_id),
            cri.ContainerStatsResponse,
            target=container_id,
            check=lambda answer: "" if answer.HasField("stats") else "stats not set",
        )
        return answer.stats

    async def list_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        """See protocol."""
        answer = await self._calls.unary(
            "ListContainerStats",
            cri.ListContainerStatsRequest(filter=filter),
            cri.ListContainerStatsResponse,
        )
        return answer.stats

    async def stream_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> AsyncIterator[cri.ContainerStats]:
        """See protocol."""
        async for answer in self._calls.stream(
            "StreamContainerStats",
            cri.StreamContainerStatsRequest(filter=filter),
            cri.StreamContainerStatsResponse,
            most=MOST_STREAMED,
        ):
            for stats in answer.container_stats:
                yield stats

    async def pod_sandbox_stats(self, pod_sandbox_id: str) -> cri.PodSandboxStats:
        """See protocol."""
        answer = await self._calls.unary(
            "PodSandboxStats",
            cri.PodSandboxStatsRequest(pod_sandbox_id=pod_sandbox_id),
            cri.PodSandboxStatsResponse,
            target=pod_sandbox_id,
            check=lambda answer: "" if answer.HasField("stats") else "stats not set",
        )
        return answer.stats

    async def list_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> Sequence[cri.PodSandboxStats]:
        """See protocol."""
        answer = await self._calls.unary(
            "ListPodSandboxStats",
            cri.ListPodSandboxStatsRequest(filter=filter),
            cri.ListPodSandboxStatsResponse,
        )
        return answer.stats

    async def stream_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> AsyncIterator[cri.PodSandboxStats]:
        """See protocol."""
        async for answer in self._calls.stream(
            "StreamPodSandboxStats",
            cri.StreamPodSandboxStatsRequest(filter=filter),
            cri.StreamPodSandboxStatsResponse,
            most=MOST_STREAMED,
        ):
            for stats in answer.pod_sandbox_stats:
                yield stats

    async def list_metric_descriptors(self) -> Sequence[cri.MetricDescriptor]:
        """See protocol."""
        answer = await self._calls.unary(
            "ListMetricDescriptors",
            cri.ListMetricDescriptorsRequest(),
            cri.ListMetricDescriptorsResponse,
        )
        return answer.descriptors

    async def list_pod_sandbox_metrics(self) -> Sequence[cri.PodSandboxMetrics]:
        """See protocol."""
        answer = await self._calls.unary(
            "ListPodSandboxMetrics",
            cri.ListPodSandboxMetricsRequest(),
            cri.ListPodSandboxMetricsResponse,
        )
        return answer.pod_metrics

    async def stream_pod_sandbox_metrics(self) -> AsyncIterator[cri.PodSandboxMetrics]:
        """See protocol."""
        async for answer in self._calls.stream(
            "StreamPodSandboxMetrics",
            cri.StreamPodSandboxMetricsRequest(),
            cri.StreamPodSandboxMetricsResponse,
            most=MOST_STREAMED,
        ):
            for metrics in answer.pod_sandbox_metrics:
                yield metrics

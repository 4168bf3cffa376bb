"""Serves the pod resources API on ``pod-resources/kubelet.sock``: v1 and v1alpha1.

The messages are loaded with the first call. Source: docs/reference/behaviour-resources.md, rw;
docs/reference/constants.csv.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kubeletpy.metrics.resources import PodResourcesMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.errors import Code
from kubeletpy.remote.local_server import CallRefused, LocalServer, NodeApi, Rate, parsed

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from kubeletpy.server.pod_resources.answers import NodeAllocations

PER_SECOND, BURST = 100.0, 10
MAX_AT_ONCE = 64
V1, V1ALPHA1 = "v1", "v1alpha1"


class PodResourcesServer(NodeApi):
    """Serves the pod resources API on its socket."""

    name = "pod resources"
    socket_name = "kubelet.sock"

    metrics: PodResourcesMetrics
    sources: Callable[[], NodeAllocations]
    """The managers of the node's resources, called with each request."""
    active: Callable[[], Sequence[Pod]]
    """The pods that use the node."""
    pods: Callable[[], Sequence[Pod]]
    """All pods of the node's sources."""
    release: Callable[[], None]
    """Releases the resources of other pods."""

    def _made(self) -> LocalServer:
        return LocalServer(
            self._socket,
            MAX_AT_ONCE,
            {
                "v1.PodResourcesLister": {
                    "List": self._counted(V1, "List", self._list),
                    "Get": self._counted(V1, "Get", self._get_pod_resources),
                    "GetAllocatableResources": self._counted(
                        V1, "GetAllocatableResources", self._allocatable
                    ),
                },
                "v1alpha1.PodResourcesLister": {
                    "List": self._counted(V1ALPHA1, "List", self._list_v1alpha1)
                },
            },
            rate=Rate(PER_SECOND, BURST),
        )

    def _counted(
        self, version: str, method: str, answer: Callable[[bytes], Message]
    ) -> Callable[[bytes], Awaitable[bytes]]:
        async def serve(data: bytes) -> bytes:
            self.metrics.total.labels(version).inc()
            self.metrics.requests[method].labels(version).inc()
            try:
                return answer(data).SerializeToString()
            except CallRefused:
                self.metrics.errors[method].labels(version).inc()
                raise

        return serve

    def _list(self, data: bytes) -> Message:
        from kubeletpy.server.pod_resources import answers

        self.release()
        return answers.list_v1(self.active(), self.sources())

    def _list_v1alpha1(self, data: bytes) -> Message:
        from kubeletpy.server.pod_resources import answers

        self.release()
        return answers.list_v1alpha1(self.pods(), self.sources())

    def _allocatable(self, data: bytes) -> Message:
        from kubeletpy.server.pod_resources import answers

        return answers.allocatable_v1(self.sources())

    def _get_pod_resources(self, data: bytes) -> Message:
        from kubeletpy.remote.generated import podresources_pb2 as pb
        from kubeletpy.server.pod_resources import answers

        request = parsed(pb.GetPodResourcesRequest, data)
        key = (request.pod_namespace, request.pod_name)
        for pod in self.active():
            if (pod.namespace, pod.name) == key and not pod.is_terminal_in_api:
                found = answers.pod_v1(pod, self.sources())
                return pb.GetPodResourcesResponse(pod_resources=found)
        text = f"pod {request.pod_name[:253]} in namespace {request.pod_namespace[:253]} not found"
        raise CallRefused(Code.UNKNOWN, text)

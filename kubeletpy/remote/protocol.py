"""The container runtime as the agent sees it: both CRI v1 services as Protocol classes.

Anything with these methods can be plugged in: the gRPC client, a simulated runtime, a user's own.
Every call of the two services is here. Must never import a transport or an event loop.

All methods raise ``remote.errors.CRIError`` subclasses and nothing else (besides cancellation).
Cancelling a call gives up the wait; the runtime may still finish the work. Times in messages are
Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kubeletpy.remote.errors import Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri

if TYPE_CHECKING:
    from kubeletpy.remote.streams import ForwardSession, ProcessSession


TaskExits = Callable[[], AsyncIterator[str]]
"""Yields the id of each container or sandbox whose main process has ended, until the stream breaks:
what some runtimes report beside the CRI. Raises CRIError; Unimplemented or PermissionDenied if the
runtime does not report it."""


def missing(method: str) -> Unimplemented:
    """The answer of a runtime that inherits a call and does not implement it."""
    return Unimplemented(method, "this runtime has no such call")


class RuntimeService(Protocol):
    """runtime.v1.RuntimeService: sandboxes, containers, streaming, stats, events."""

    async def version(self) -> cri.VersionResponse:
        """Name, version and API version of the runtime; InvalidResponse when one is missing."""
        raise missing("Version")

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        """Create and start a sandbox; its id. ``runtime_handler`` "" is the runtime's default."""
        raise missing("RunPodSandbox")

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Stop a sandbox and everything in it, and tear down its network. Idempotent."""
        raise missing("StopPodSandbox")

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        """Remove a sandbox and its containers, by force if they are running. Idempotent."""
        raise missing("RemovePodSandbox")

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> cri.PodSandboxStatusResponse:
        """The state of a sandbox; NotFound when there is none."""
        raise missing("PodSandboxStatus")

    async def list_pod_sandbox(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> Sequence[cri.PodSandbox]:
        """All sandboxes, or those that the filter lets through."""
        raise missing("ListPodSandbox")

    def stream_pod_sandboxes(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> AsyncIterator[cri.PodSandbox]:
        """list_pod_sandbox in pieces, for nodes whose list outgrows one message (KEP-5825)."""
        raise missing("StreamPodSandboxes")

    async def create_container(
        self, pod_sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        """Create a container in a sandbox, without starting it; its id."""
        raise missing("CreateContainer")

    async def start_container(self, container_id: str) -> None:
        """Start a created container."""
        raise missing("StartContainer")

    async def stop_container(self, container_id: str, timeout: int) -> None:
        """Send the stop signal, then SIGKILL after ``timeout`` seconds of grace. Idempotent."""
        raise missing("StopContainer")

    async def remove_container(self, container_id: str) -> None:
        """Remove a container, by force if it is running. Idempotent."""
        raise missing("RemoveContainer")

    async def list_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> Sequence[cri.Container]:
        """All containers, or those that the filter lets through."""
        raise missing("ListContainers")

    def stream_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> AsyncIterator[cri.Container]:
        """list_containers in pieces (KEP-5825)."""
        raise missing("StreamContainers")

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        """The state of a container; NotFound when there is none."""
        raise missing("ContainerStatus")

    async def update_container_resources(
        self,
        container_id: str,
        linux: cri.LinuxContainerResources,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Change the limits of a container in place."""
        raise missing("UpdateContainerResources")

    async def reopen_container_log(self, container_id: str) -> None:
        """Make the runtime reopen the log file after a rotation."""
        raise missing("ReopenContainerLog")

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        """Run a command to its end; a failed command is an answer with its exit code, not an error.

        ``timeout`` in seconds, 0 for none; DeadlineExceeded when it passes.
        """
        raise missing("ExecSync")

    async def exec(self, request: cri.ExecRequest) -> str | ProcessSession:
        """The URL where the runtime streams a command's input and output, or its session."""
        raise missing("Exec")

    async def attach(self, request: cri.AttachRequest) -> str | ProcessSession:
        """The URL where the runtime streams a container's input and output, or its session."""
        raise missing("Attach")

    async def port_forward(self, request: cri.PortForwardRequest) -> str | ForwardSession:
        """The URL where the runtime streams bytes to ports of a sandbox, or a session for it."""
        raise missing("PortForward")

    async def container_stats(self, container_id: str) -> cri.ContainerStats:
        """The resource usage of a container."""
        raise missing("ContainerStats")

    async def list_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        """The resource usage of running containers."""
        raise missing("ListContainerStats")

    def stream_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> AsyncIterator[cri.ContainerStats]:
        """list_container_stats in pieces (KEP-5825)."""
        raise missing("StreamContainerStats")

    async def pod_sandbox_stats(self, pod_sandbox_id: str) -> cri.PodSandboxStats:
        """The resource usage of a sandbox and its containers."""
        raise missing("PodSandboxStats")

    async def list_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> Sequence[cri.PodSandboxStats]:
        """The resource usage of sandboxes and their containers."""
        raise missing("ListPodSandboxStats")

    def stream_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> AsyncIterator[cri.PodSandboxStats]:
        """list_pod_sandbox_stats in pieces (KEP-5825)."""
        raise missing("StreamPodSandboxStats")

    async def update_runtime_config(self, runtime_config: cri.RuntimeConfig) -> None:
        """Give the runtime the node's pod CIDR."""
        raise missing("UpdateRuntimeConfig")

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        """Conditions RuntimeReady and NetworkReady, handlers and features."""
        raise missing("Status")

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        """Write a container's checkpoint to ``location``; ``timeout`` seconds, 0: the default."""
        raise missing("CheckpointContainer")

    def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        """Events of all containers and sandboxes, as they happen, until the runtime goes away.

        Ends with an error (Unimplemented from runtimes without events, Unavailable when the runtime
        is lost) or, when the runtime closes the stream cleanly, by exhaustion. Leave the loop or
        ``aclose()`` the iterator to stop.
        """
        raise missing("GetContainerEvents")

    async def list_metric_descriptors(self) -> Sequence[cri.MetricDescriptor]:
        """Describes the metrics of list_pod_sandbox_metrics."""
        raise missing("ListMetricDescriptors")

    async def list_pod_sandbox_metrics(self) -> Sequence[cri.PodSandboxMetrics]:
        """Metrics of all sandboxes and their containers, under the runtime's names."""
        raise missing("ListPodSandboxMetrics")

    def stream_pod_sandbox_metrics(self) -> AsyncIterator[cri.PodSandboxMetrics]:
        """list_pod_sandbox_metrics in pieces (KEP-5825)."""
        raise missing("StreamPodSandboxMetrics")

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        """How the runtime is configured: its cgroup driver. Unimplemented before containerd 2.0."""
        raise missing("RuntimeConfig")

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: cri.LinuxContainerResources | None,
        resources: cri.LinuxContainerResources | None,
    ) -> None:
        """Notify the runtime that a sandbox's resources have changed."""
        raise missing("UpdatePodSandboxResources")


class ImageService(Protocol):
    """runtime.v1.ImageService: the node's images."""

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        """All images, or those that the filter lets through."""
        raise missing("ListImages")

    def stream_images(self, filter: cri.ImageFilter | None = None) -> AsyncIterator[cri.Image]:
        """list_images in pieces (KEP-5825)."""
        raise missing("StreamImages")

    async def image_status(
        self, image: cri.ImageSpec, verbose: bool = False
    ) -> cri.ImageStatusResponse:
        """An image; the answer has no ``image`` when it is not on the node."""
        raise missing("ImageStatus")

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        """Pull an image; its reference on the node. No deadline: cancel to give up."""
        raise missing("PullImage")

    async def remove_image(self, image: cri.ImageSpec) -> None:
        """Remove an image and all its tags. Idempotent."""
        raise missing("RemoveImage")

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        """The filesystems of images and of containers' writable layers, and their usage."""
        raise missing("ImageFsInfo")

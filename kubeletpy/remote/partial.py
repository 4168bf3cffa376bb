"""A runtime that answers nothing yet: the base of a program's own runtime.

Every call of both CRI services is here and answers Unimplemented, but for those that have one
obvious answer: streamed lists are the plain lists in pieces, a runtime that answers is ready, and
what it is told about the node's addresses may be ignored. Must never do any I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from kubeletpy.remote.errors import Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri


def _missing(method: str) -> Unimplemented:
    return Unimplemented(method, "this runtime has no such call")


class PartialRuntime:
    """Both services of :mod:`kubeletpy.remote.protocol`; a subclass overrides what it can do.

    What an agent can't do without: ``version``, ``list_pod_sandbox``, ``pod_sandbox_status``,
    ``run_pod_sandbox``, ``stop_pod_sandbox``, ``remove_pod_sandbox``, and the same of containers
    with ``create_container`` and ``start_container``. Exits take effect within a second without
    ``get_container_events``, and at once with it.
    """

    # -- runtime service ------------------------------------------------------------

    async def version(self) -> cri.VersionResponse:
        raise _missing("Version")

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        raise _missing("RunPodSandbox")

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        raise _missing("StopPodSandbox")

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        raise _missing("RemovePodSandbox")

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> cri.PodSandboxStatusResponse:
        raise _missing("PodSandboxStatus")

    async def list_pod_sandbox(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> Sequence[cri.PodSandbox]:
        raise _missing("ListPodSandbox")

    async def stream_pod_sandboxes(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> AsyncIterator[cri.PodSandbox]:
        """list_pod_sandbox, one by one."""
        for each in await self.list_pod_sandbox(filter):
            yield each

    async def create_container(
        self, pod_sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        raise _missing("CreateContainer")

    async def start_container(self, container_id: str) -> None:
        raise _missing("StartContainer")

    async def stop_container(self, container_id: str, timeout: int) -> None:
        raise _missing("StopContainer")

    async def remove_container(self, container_id: str) -> None:
        raise _missing("RemoveContainer")

    async def list_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> Sequence[cri.Container]:
        raise _missing("ListContainers")

    async def stream_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> AsyncIterator[cri.Container]:
        """list_containers, one by one."""
        for each in await self.list_containers(filter):
            yield each

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        raise _missing("ContainerStatus")

    async def update_container_resources(
        self,
        container_id: str,
        linux: cri.LinuxContainerResources,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        raise _missing("UpdateContainerResources")

    async def reopen_container_log(self, container_id: str) -> None:
        raise _missing("ReopenContainerLog")

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        raise _missing("ExecSync")

    async def exec(self, request: cri.ExecRequest) -> str:
        raise _missing("Exec")

    async def attach(self, request: cri.AttachRequest) -> str:
        raise _missing("Attach")

    async def port_forward(self, request: cri.PortForwardRequest) -> str:
        raise _missing("PortForward")

    async def container_stats(self, container_id: str) -> cri.ContainerStats:
        raise _missing("ContainerStats")

    async def list_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        """None known."""
        return ()

    async def stream_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> AsyncIterator[cri.ContainerStats]:
        """list_container_stats, one by one."""
        for each in await self.list_container_stats(filter):
            yield each

    async def pod_sandbox_stats(self, pod_sandbox_id: str) -> cri.PodSandboxStats:
        raise _missing("PodSandboxStats")

    async def list_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> Sequence[cri.PodSandboxStats]:
        """None known."""
        return ()

    async def stream_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> AsyncIterator[cri.PodSandboxStats]:
        """list_pod_sandbox_stats, one by one."""
        for each in await self.list_pod_sandbox_stats(filter):
            yield each

    async def update_runtime_config(self, runtime_config: cri.RuntimeConfig) -> None:
        """Ignored: pods get no addresses from the range."""
        return

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        """Ready: it answers."""
        ready = [
            cri.RuntimeCondition(type=f"{each}Ready", status=True)
            for each in ("Runtime", "Network")
        ]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=ready))

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        raise _missing("CheckpointContainer")

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        """Override it as an asynchronous generator."""
        raise _missing("GetContainerEvents")
        yield cri.ContainerEventResponse()

    async def list_metric_descriptors(self) -> Sequence[cri.MetricDescriptor]:
        """None."""
        return ()

    async def list_pod_sandbox_metrics(self) -> Sequence[cri.PodSandboxMetrics]:
        """None."""
        return ()

    async def stream_pod_sandbox_metrics(self) -> AsyncIterator[cri.PodSandboxMetrics]:
        """list_pod_sandbox_metrics, one by one."""
        for each in await self.list_pod_sandbox_metrics():
            yield each

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        raise _missing("RuntimeConfig")

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: cri.LinuxContainerResources | None,
        resources: cri.LinuxContainerResources | None,
    ) -> None:
        """Ignored: it is a notification."""
        return

    # -- image service ------------------------------------------------------------

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        """None are kept."""
        return ()

    async def stream_images(
        self, filter: cri.ImageFilter | None = None
    ) -> AsyncIterator[cri.Image]:
        """list_images, one by one."""
        for each in await self.list_images(filter):
            yield each

    async def image_status(
        self, image: cri.ImageSpec, verbose: bool = False
    ) -> cri.ImageStatusResponse:
        """Every image is there, as for a runtime that has none."""
        found = cri.Image(id=image.image, repo_tags=[image.image], size=1)
        return cri.ImageStatusResponse(image=found)

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        """Every image is there already."""
        return image.image

    async def remove_image(self, image: cri.ImageSpec) -> None:
        """There is nothing to remove."""
        return

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        """No filesystems."""
        return cri.ImageFsInfoResponse()

"""A runtime that answers nothing yet: the base of a program's own runtime.

Every call of both CRI services is here and answers Unimplemented, except those with one obvious
answer. Streamed lists are the plain lists in pieces, a runtime that answers is ready, and the
node's addresses passed to it may be ignored. Must never do any I/O.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService, missing


class PartialRuntime(RuntimeService, ImageService):
    """Both services of :mod:`kubeletpy.remote.protocol`; a subclass overrides what it can do.

    An agent needs at least ``version``, ``list_pod_sandbox``, ``pod_sandbox_status``,
    ``run_pod_sandbox``, ``stop_pod_sandbox``, ``remove_pod_sandbox``, and the same of containers
    with ``create_container`` and ``start_container``. Exits take effect within a second without
    ``get_container_events``, and at once with it.
    """

    # -- runtime service ------------------------------------------------------------

    async def stream_pod_sandboxes(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> AsyncIterator[cri.PodSandbox]:
        """list_pod_sandbox, one by one."""
        for each in await self.list_pod_sandbox(filter):
            yield each

    async def stream_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> AsyncIterator[cri.Container]:
        """list_containers, one by one."""
        for each in await self.list_containers(filter):
            yield each

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

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        """Override it as an asynchronous generator."""
        raise missing("GetContainerEvents")
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

"""Both CRI services over gRPC: the calls, a line for each, and those that need more than a line.

Must never decide when to call, nor let credentials into an error or a log line.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Sequence

from kubeletpy.remote import verify
from kubeletpy.remote.calls import CallMetrics, ServiceCalls
from kubeletpy.remote.declared import streamed, unary
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService

ASKED_VERSION = "0.1.0"
"""The kubelet's constant in VersionRequest since CRI began; runtimes ignore it."""


class RemoteServices(RuntimeService, ImageService):
    """The calls of both services, but for the lists that may have to be requested in parts."""

    def __init__(self, runtime: ServiceCalls, images: ServiceCalls, metrics: CallMetrics) -> None:
        self.services = {"RuntimeService": runtime, "ImageService": images}
        self._calls = runtime
        self._image_calls = images
        self._sandbox_metrics = metrics

    # -- the runtime ------------------------------------------------------------------------------
    status = unary(RuntimeService.status, check=verify.wrong_status)
    runtime_config = unary(RuntimeService.runtime_config)
    update_runtime_config = unary(RuntimeService.update_runtime_config)

    # -- sandboxes --------------------------------------------------------------------------------
    stop_pod_sandbox = unary(RuntimeService.stop_pod_sandbox, target="pod_sandbox_id")
    remove_pod_sandbox = unary(RuntimeService.remove_pod_sandbox, target="pod_sandbox_id")
    pod_sandbox_status = unary(
        RuntimeService.pod_sandbox_status,
        target="pod_sandbox_id",
        check=verify.wrong_sandbox_status,
    )
    update_pod_sandbox_resources = unary(
        RuntimeService.update_pod_sandbox_resources, target="pod_sandbox_id"
    )
    port_forward = unary(RuntimeService.port_forward, answer="url", target="pod_sandbox_id")
    stream_pod_sandboxes = streamed(
        RuntimeService.stream_pod_sandboxes,
        "pod_sandboxes",
        lambda items, filter: verify.believable_sandboxes(items, filter)[0],
    )

    # -- containers -------------------------------------------------------------------------------
    start_container = unary(RuntimeService.start_container, target="container_id")
    stop_container = unary(RuntimeService.stop_container, target="container_id", own="timeout")
    remove_container = unary(RuntimeService.remove_container, target="container_id")
    container_status = unary(
        RuntimeService.container_status,
        target="container_id",
        check=verify.wrong_container_status,
    )
    update_container_resources = unary(
        RuntimeService.update_container_resources, target="container_id"
    )
    reopen_container_log = unary(RuntimeService.reopen_container_log, target="container_id")
    exec = unary(RuntimeService.exec, answer="url", target="container_id")
    attach = unary(RuntimeService.attach, answer="url", target="container_id")
    stream_containers = streamed(
        RuntimeService.stream_containers,
        "containers",
        lambda items, filter: verify.believable_containers(items, filter)[0],
    )

    # -- stats and metrics ------------------------------------------------------------------------
    container_stats = unary(RuntimeService.container_stats, answer="stats", target="container_id")
    list_container_stats = unary(RuntimeService.list_container_stats, answer="stats")
    stream_container_stats = streamed(RuntimeService.stream_container_stats, "container_stats")
    pod_sandbox_stats = unary(
        RuntimeService.pod_sandbox_stats, answer="stats", target="pod_sandbox_id"
    )
    list_pod_sandbox_stats = unary(RuntimeService.list_pod_sandbox_stats, answer="stats")
    stream_pod_sandbox_stats = streamed(
        RuntimeService.stream_pod_sandbox_stats, "pod_sandbox_stats"
    )
    list_metric_descriptors = unary(RuntimeService.list_metric_descriptors, answer="descriptors")
    list_pod_sandbox_metrics = unary(RuntimeService.list_pod_sandbox_metrics, answer="pod_metrics")
    stream_pod_sandbox_metrics = streamed(
        RuntimeService.stream_pod_sandbox_metrics, "pod_sandbox_metrics"
    )

    # -- images -----------------------------------------------------------------------------------
    list_images = unary(ImageService.list_images, answer="images", believe=verify.believable_images)
    stream_images = streamed(
        ImageService.stream_images, "images", lambda items, _: verify.believable_images(items)
    )
    image_status = unary(
        ImageService.image_status, target="image.image", check=verify.wrong_image_status
    )
    remove_image = unary(ImageService.remove_image, target="image.image")
    image_fs_info = unary(ImageService.image_fs_info)

    # -- what needs more than a line --------------------------------------------------------------
    async def version(self) -> cri.VersionResponse:
        return await self._calls.unary(
            "Version",
            cri.VersionRequest(version=ASKED_VERSION),
            cri.VersionResponse,
            check=verify.wrong_version,
        )

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
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

    async def create_container(
        self,
        pod_sandbox_id: str,
        config: cri.ContainerConfig,
        sandbox_config: cri.PodSandboxConfig,
    ) -> str:
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

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
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
        """The runtime counts whole seconds: a fraction is rounded up."""
        return await self._calls.unary(
            "ExecSync",
            cri.ExecSyncRequest(container_id=container_id, cmd=cmd, timeout=math.ceil(timeout)),
            cri.ExecSyncResponse,
            own=timeout,
            target=container_id,
        )

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        async for event in self._calls.stream(
            "GetContainerEvents", cri.GetEventsRequest(), cri.ContainerEventResponse
        ):
            yield event

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        answer = await self._image_calls.unary(
            "PullImage",
            cri.PullImageRequest(image=image, auth=auth, sandbox_config=sandbox_config),
            cri.PullImageResponse,
            target=image.image,
            check=lambda answer: verify.unset(answer, "image_ref"),
            secrets=secrets_of(auth),
        )
        return answer.image_ref


def secrets_of(auth: cri.AuthConfig | None) -> tuple[str, ...]:
    """The strings of a credential that must not be shown, also the password inside ``auth``."""
    if auth is None:
        return ()
    try:
        inside = base64.b64decode(auth.auth, validate=True).decode().partition(":")[2]
    except ValueError:
        inside = ""
    return (auth.password, auth.auth, auth.identity_token, auth.registry_token, inside)

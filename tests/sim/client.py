"""The agent's end of the wire to the simulated runtime: both CRI Protocols, with faults.

One per life of the agent; a dead life's client makes no call and answers none.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from kubeletpy.remote.errors import CRIError, DeadlineExceeded, Internal, Unavailable, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from tests.sim.events import EventQueue
from tests.sim.faults import FaultKind, Faults
from tests.sim.loop import spawn
from tests.sim.runtime import SimRuntime

T = TypeVar("T")

DEADLINE = 120.0
READ_LATENCY = (0.0005, 0.004)

Step = Callable[[str, str], None]
"""Called with ("call" | "check" | "answer", name) at the boundaries of a call: before it, when it
takes effect, and before its answer arrives. Raises CancelledError for the dead."""


class Connection:
    """The socket: it can be lost, and with it every call under way."""

    def __init__(self) -> None:
        self.up = True
        self._waiting: dict[asyncio.Future[Any], None] = {}

    def lose(self) -> None:
        """The runtime has exited: all calls under way fail, further ones too."""
        self.up = False
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(Unavailable("connection", "connection lost"))

    async def wait(self, task: asyncio.Task[T]) -> T:
        """The result of a task of the runtime; Unavailable when the connection is lost first."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(ended: asyncio.Task[T]) -> None:
            error = None if ended.cancelled() else ended.exception()
            if future.done() or ended.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(ended.result())

        task.add_done_callback(done)
        self._waiting[future] = None
        try:
            return await future
        finally:
            self._waiting.pop(future, None)


class RuntimeClient:
    """RuntimeService and ImageService for one life of the agent."""

    def __init__(
        self,
        runtime: SimRuntime,
        connection: Connection,
        faults: Faults,
        rng: random.Random,
        step: Step,
    ) -> None:
        self._runtime = runtime
        self._connection = connection
        self._faults = faults
        self._rng = rng
        self._step = step

    async def _call(
        self, method: str, work: Callable[[], Coroutine[Any, Any, T]], *, deadline: float = DEADLINE
    ) -> T:
        self._step("call", method)
        fault = self._faults.draw()
        kind = None if fault is None else fault.kind
        if not self._connection.up:
            await asyncio.sleep(0.001)
            raise Unavailable(method, "connection refused")
        if fault is not None and kind is FaultKind.SLOW:
            await asyncio.sleep(fault.seconds)
        if kind is FaultKind.BEFORE:
            await asyncio.sleep(0.01)
            raise Internal(method, "injected: failed before it did anything")
        if kind is FaultKind.HANG:
            await asyncio.sleep(deadline)
            raise DeadlineExceeded(method, "injected: no answer")
        self._step("check", method)
        task = spawn(work())
        try:
            result: T = await self._connection.wait(task)
        except asyncio.CancelledError:
            task.cancel()  # a server's context ends with its client
            raise
        self._step("answer", method)
        if kind is FaultKind.AFTER:
            raise self._rng.choice((Internal, Unavailable, DeadlineExceeded))(
                method, "injected: failed after it was done"
            )
        if kind is FaultKind.HANG_DONE:
            await asyncio.sleep(deadline)
            raise DeadlineExceeded(method, "injected: the answer was lost")
        return result

    async def _read(self, method: str, check: Callable[[], T]) -> T:
        async def work() -> T:
            await asyncio.sleep(self._rng.uniform(*READ_LATENCY) / 2)
            result = check()
            await asyncio.sleep(self._rng.uniform(*READ_LATENCY) / 2)
            return result

        return await self._call(method, work)

    # -- runtime service ---------------------------------------------------------------------

    async def version(self) -> cri.VersionResponse:
        return await self._read(
            "Version",
            lambda: cri.VersionResponse(
                version="0.1.0",
                runtime_name="containerd",
                runtime_version="2.1.0" if self._runtime.events else "1.6.20",
                runtime_api_version="v1",
            ),
        )

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        return await self._read("Status", self._status)

    def _status(self) -> cri.StatusResponse:
        network = self._runtime.network_ready
        conditions = [
            cri.RuntimeCondition(type="RuntimeReady", status=True),
            cri.RuntimeCondition(
                type="NetworkReady",
                status=network,
                reason="" if network else "NetworkPluginNotReady",
                message="" if network else "cni plugin not initialized",
            ),
        ]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        return await self._call(
            "RunPodSandbox", lambda: self._runtime.run_pod_sandbox(config), deadline=2 * DEADLINE
        )

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self._call("StopPodSandbox", lambda: self._runtime.stop_pod_sandbox(pod_sandbox_id))

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self._call(
            "RemovePodSandbox", lambda: self._runtime.remove_pod_sandbox(pod_sandbox_id)
        )

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> cri.PodSandboxStatusResponse:
        return await self._read(
            "PodSandboxStatus", lambda: self._runtime.sandbox_status(pod_sandbox_id)
        )

    async def list_pod_sandbox(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> Sequence[cri.PodSandbox]:
        return await self._read("ListPodSandbox", lambda: self._runtime.list_sandboxes(filter))

    async def create_container(
        self, pod_sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        return await self._call(
            "CreateContainer", lambda: self._runtime.create_container(pod_sandbox_id, config)
        )

    async def start_container(self, container_id: str) -> None:
        await self._call("StartContainer", lambda: self._runtime.start_container(container_id))

    async def stop_container(self, container_id: str, timeout: int) -> None:
        await self._call(
            "StopContainer",
            lambda: self._runtime.stop_container(container_id, timeout),
            deadline=DEADLINE + timeout,
        )

    async def remove_container(self, container_id: str) -> None:
        await self._call("RemoveContainer", lambda: self._runtime.remove_container(container_id))

    async def list_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> Sequence[cri.Container]:
        return await self._read("ListContainers", lambda: self._runtime.list_containers(filter))

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        return await self._read(
            "ContainerStatus", lambda: self._runtime.container_status(container_id)
        )

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        async for event in self._stream("GetContainerEvents", self._runtime.events):
            yield event

    async def task_exits(self) -> AsyncIterator[str]:
        """containerd's task events."""
        if self._runtime.task_events is not None:
            self._runtime.task_events.clear()  # they are not kept for the next subscriber
        async for event in self._stream("Subscribe", self._runtime.task_events):
            yield event.container_id

    async def _stream(
        self, method: str, events: EventQueue | None
    ) -> AsyncIterator[cri.ContainerEventResponse]:
        await asyncio.sleep(0.001)
        if events is None:
            raise Unimplemented(method, "unknown method")
        while True:
            if not self._connection.up:
                raise Unavailable(method, "connection refused")
            event = await events.take()
            if event is None:
                raise Unavailable(method, "stream broke")
            await asyncio.sleep(self._rng.uniform(*READ_LATENCY))
            self._step("answer", method)
            yield event

    async def update_runtime_config(self, runtime_config: cri.RuntimeConfig) -> None:
        await self._read("UpdateRuntimeConfig", lambda: None)

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        if self._runtime.events is None:
            raise Unimplemented("RuntimeConfig", "unknown method")
        answer = cri.RuntimeConfigResponse()
        answer.linux.cgroup_driver = cri.CGROUPFS
        return await self._read("RuntimeConfig", lambda: answer)

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        takes, answer = self._runtime.commands.get(cmd[0], (0.0, cri.ExecSyncResponse()))
        await asyncio.sleep(takes)
        return await self._read("ExecSync", lambda: answer)

    async def reopen_container_log(self, container_id: str) -> None:
        await self._read("ReopenContainerLog", lambda: None)

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: cri.LinuxContainerResources | None,
        resources: cri.LinuxContainerResources | None,
    ) -> None:
        if self._runtime.events is None:
            raise Unimplemented("UpdatePodSandboxResources", "unknown method")
        await self._call(
            "UpdatePodSandboxResources",
            lambda: self._runtime.update_pod_sandbox_resources(pod_sandbox_id, resources),
        )

    async def update_container_resources(
        self,
        container_id: str,
        linux: cri.LinuxContainerResources,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        await self._call(
            "UpdateContainerResources",
            lambda: self._runtime.update_container_resources(container_id, linux),
        )

    async def container_stats(self, container_id: str) -> cri.ContainerStats:
        return await self._read(
            "ContainerStats", lambda: self._runtime.container_stats(container_id)
        )

    async def list_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        return await self._read("ListContainerStats", list)

    async def list_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> Sequence[cri.PodSandboxStats]:
        return await self._read("ListPodSandboxStats", list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The rest of the CRI, which this runtime does not have."""
        if name.startswith("_"):
            raise AttributeError(name)

        async def missing(*args: object, **kwargs: object) -> Any:
            raise Unimplemented(name, "not simulated")

        return missing

    # -- image service -----------------------------------------------------------------------

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        return await self._read(
            "ListImages", lambda: [_found(self._runtime.image(i)) for i in self._runtime.images]
        )

    async def image_status(
        self, image: cri.ImageSpec, verbose: bool = False
    ) -> cri.ImageStatusResponse:
        return await self._read(
            "ImageStatus", lambda: cri.ImageStatusResponse(image=self._runtime.image(image.image))
        )

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        return await self._call("PullImage", lambda: self._runtime.pull_image(image.image, auth))

    async def remove_image(self, image: cri.ImageSpec) -> None:
        def remove() -> None:
            for name in list(self._runtime.images):
                with contextlib.suppress(CRIError):
                    if self._runtime.image(image.image) == self._runtime.image(name):
                        del self._runtime.images[name]

        await self._read("RemoveImage", remove)

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        return await self._read("ImageFsInfo", cri.ImageFsInfoResponse)


def _found(image: cri.Image | None) -> cri.Image:
    assert image is not None
    return image

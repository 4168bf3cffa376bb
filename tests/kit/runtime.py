"""A container runtime in memory, and the acting half of the runtime manager on it.

Its calls take a moment of virtual time, can fail or hang, and are recorded in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kubeletpy.base.structs import replace
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.uses import ImageUses
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, PodSyncResult
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from tests.kit.events import Recorder
from tests.kit.images import FakeImages
from tests.kit.records import IMAGE
from tests.kit.virtual_time import EPOCH, LoopClock


def now() -> int:
    """Virtual Unix nanoseconds."""
    return int((EPOCH + asyncio.get_running_loop().time()) * 1e9)


@dataclass
class FakeRuntime:
    """Implements the calls of RuntimeService that the runtime manager makes."""

    sandboxes: dict[str, cri.PodSandboxStatus] = field(default_factory=dict)
    containers: dict[str, cri.ContainerStatus] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    """Container id -> sandbox id."""
    configs: dict[str, cri.ContainerConfig] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    errors: dict[str, CRIError] = field(default_factory=dict)
    """Method, or "method target" -> error, raised at the end of the call."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Method, or "method target" -> how long it takes."""
    stop_seconds: dict[str, float] = field(default_factory=dict)
    """Container name -> how long it needs to end by itself; beyond the timeout it is killed."""
    tells_resources: bool = False
    """Container statuses have the limits of the container, as those of containerd 2 do."""
    updates: list[tuple[str, cri.LinuxContainerResources]] = field(default_factory=list)
    """Container id and what it was updated with."""
    memory_used: dict[str, int | None] = field(default_factory=dict)
    """Container name -> bytes; None: not reported."""
    most_at_once: dict[str, int] = field(default_factory=dict)
    running_calls: dict[str, int] = field(default_factory=dict)

    async def _call(self, method: str, target: str) -> None:
        self.calls.append(f"{method} {target}")
        self.running_calls[method] = self.running_calls.get(method, 0) + 1
        self.most_at_once[method] = max(
            self.most_at_once.get(method, 0), self.running_calls[method]
        )
        try:
            key = f"{method} {target}"
            await asyncio.sleep(self.seconds.get(key, self.seconds.get(method, 0.001)))
        finally:
            self.running_calls[method] -= 1
        error = self.errors.get(f"{method} {target}", self.errors.get(method))
        if error is not None:
            raise error

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        metadata = config.metadata
        await self._call("run_pod_sandbox", metadata.name)
        sandbox = cri.PodSandboxStatus(
            id=f"sandbox-{metadata.name}-{metadata.attempt}",
            metadata=metadata,
            state=cri.SANDBOX_READY,
            created_at=now(),
            network=cri.PodSandboxNetworkStatus(ip="10.0.0.9"),
            labels=config.labels,
        )
        self.sandboxes[sandbox.id] = sandbox
        return str(sandbox.id)

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self._call("stop_pod_sandbox", pod_sandbox_id)
        if pod_sandbox_id in self.sandboxes:
            self.sandboxes[pod_sandbox_id].state = cri.SANDBOX_NOTREADY
            for container_id, sandbox_id in self.inside.items():
                if sandbox_id == pod_sandbox_id:
                    self.end(container_id, 137)

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self._call("remove_pod_sandbox", pod_sandbox_id)
        self.sandboxes.pop(pod_sandbox_id, None)

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> cri.PodSandboxStatusResponse:
        await self._call("pod_sandbox_status", pod_sandbox_id)
        if pod_sandbox_id not in self.sandboxes:
            raise NotFound("PodSandboxStatus", "not found")
        return cri.PodSandboxStatusResponse(status=self.sandboxes[pod_sandbox_id])

    async def list_pod_sandbox(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> Sequence[cri.PodSandbox]:
        await self._call("list_pod_sandbox", "")
        return [
            cri.PodSandbox(
                id=s.id,
                metadata=s.metadata,
                state=s.state,
                created_at=s.created_at,
                labels=s.labels,
                annotations=s.annotations,
            )
            for s in self.sandboxes.values()
            if filter is None or filter.label_selector.items() <= s.labels.items()
        ]

    async def create_container(
        self, pod_sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        name, attempt = config.metadata.name, config.metadata.attempt
        await self._call("create_container", name)
        container = cri.ContainerStatus(
            id=f"container-{name}-{attempt}",
            metadata=config.metadata,
            state=cri.CONTAINER_CREATED,
            created_at=now(),
            image=cri.ImageSpec(image=config.image.user_specified_image),
            labels=config.labels,
            annotations=config.annotations,
            mounts=config.mounts,
            log_path=f"{sandbox_config.log_directory}/{config.log_path}",
        )
        if self.tells_resources:
            container.resources.linux.CopyFrom(config.linux.resources)
        self.containers[container.id] = container
        self.inside[container.id] = pod_sandbox_id
        self.configs[name] = config
        return str(container.id)

    async def start_container(self, container_id: str) -> None:
        await self._call("start_container", container_id)
        container = self.containers[container_id]
        container.state, container.started_at = cri.CONTAINER_RUNNING, now()

    async def stop_container(self, container_id: str, timeout: int) -> None:
        container = self.containers.get(container_id)
        if container is None:
            raise NotFound("StopContainer", "no such container")
        needs = self.stop_seconds.get(container.metadata.name, 0.001)
        self.calls.append(f"stop_container {container_id} {timeout}")
        if error := self.errors.get(f"stop_container {container_id}"):
            raise error
        await asyncio.sleep(min(needs, timeout))
        self.end(container_id, 0 if needs <= timeout else 137)

    async def remove_container(self, container_id: str) -> None:
        await self._call("remove_container", container_id)
        self.containers.pop(container_id, None)
        self.inside.pop(container_id, None)

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        await self._call("container_status", container_id)
        if container_id not in self.containers:
            raise NotFound("ContainerStatus", "not found")
        answer = cri.ContainerStatusResponse()
        answer.status.CopyFrom(self.containers[container_id])
        return answer

    async def list_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> Sequence[cri.Container]:
        await self._call("list_containers", "")
        return [
            cri.Container(
                id=c.id,
                metadata=c.metadata,
                pod_sandbox_id=self.inside[c.id],
                state=c.state,
                created_at=c.created_at,
                labels=c.labels,
                annotations=c.annotations,
            )
            for c in self.containers.values()
            if filter is None or filter.label_selector.items() <= c.labels.items()
        ]

    async def update_container_resources(
        self,
        container_id: str,
        linux: cri.LinuxContainerResources,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        await self._call("update_container_resources", container_id)
        if container_id not in self.containers:
            raise NotFound("UpdateContainerResources", "not found")
        self.updates.append((container_id, linux))
        if self.tells_resources:
            self.containers[container_id].resources.linux.MergeFrom(linux)

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: cri.LinuxContainerResources | None,
        resources: cri.LinuxContainerResources | None,
    ) -> None:
        assert resources is not None
        parts = (
            f"shares={resources.cpu_shares} quota={resources.cpu_quota} "
            f"memory={resources.memory_limit_in_bytes}"
        )
        await self._call("update_pod_sandbox_resources", parts)

    async def container_stats(self, container_id: str) -> cri.ContainerStats:
        await self._call("container_stats", container_id)
        stats = cri.ContainerStats()
        used = self.memory_used.get(self.containers[container_id].metadata.name, 1 << 20)
        if used is not None:
            stats.memory.usage_bytes.value = used
        return stats

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        await self._call("status", "")
        ready = cri.RuntimeCondition(type="RuntimeReady", status=True)
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=[ready]))

    def end(self, container_id: str, code: int) -> None:
        """End a container."""
        container = self.containers[container_id]
        if container.state != cri.CONTAINER_EXITED:
            container.state, container.exit_code = cri.CONTAINER_EXITED, code
            container.finished_at = now()

    def running(self) -> list[str]:
        """Names of running containers."""
        return [
            c.metadata.name for c in self.containers.values() if c.state == cri.CONTAINER_RUNNING
        ]

    def changes(self) -> list[str]:
        """Calls that change something."""
        reads = ("list_", "container_status", "container_stats", "pod_sandbox_status", "status")
        return [call for call in self.calls if not call.startswith(reads)]


@dataclass
class FakeNode:
    """A node in memory; make it inside a running loop."""

    directory: Path
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    images: FakeImages = field(default_factory=FakeImages)
    events: Recorder = field(default_factory=Recorder)
    metrics: Metrics = field(default_factory=Metrics)
    options: dict[str, Any] = field(default_factory=dict)
    known: PodRuntimeStatus | None = None
    settings: RuntimeSettings = field(default_factory=RuntimeSettings)

    def __post_init__(self) -> None:
        self.images.add(IMAGE)
        self.restart_agent()

    def restart_agent(self) -> None:
        """Replace the manager by a new one without state."""
        self.known = None
        self.uses = ImageUses()
        images = ImageManager(
            cast(Any, self.images), self.events, LoopClock(), self.metrics.images, uses=self.uses
        )
        hooks = LifecycleHookRunner(cast(Any, self.runtime), self.events, self.metrics.hooks)
        self.manager = KubeRuntimeManager(
            cast(Any, self.runtime),
            images,
            self.events,
            LoopClock(),
            self.metrics.starts,
            root_dir=str(self.directory / "root"),
            settings=replace(
                self.settings,
                pod_logs_dir=str(self.directory / "pods"),
                container_logs_dir=str(self.directory / "containers"),
                cluster_dns=("10.96.0.10",),
            ),
            **{"hooks": hooks, "actuated": ResourceState(), **self.options},
        )

    async def refresh(self, pod: Pod) -> PodRuntimeStatus:
        """Read the pod's status from the runtime."""
        self.known = await self.manager.source.read_pod_status(pod.uid, pod.name, pod.namespace)
        return self.known

    async def sync(self, pod: Pod, **request: Any) -> PodSyncResult:
        """One sync from the last known status."""
        status = self.known or await self.refresh(pod)
        result = await self.manager.executor.sync_pod(SyncPodRequest(pod, status, **request))
        self.known = result.status or self.known
        return result

    async def kill(self, pod: Pod | None, grace: int | None = None) -> PodSyncResult:
        """Stop the pod that was synced."""
        assert self.known is not None
        result = await self.manager.killer.kill_pod(pod, self.known, grace)
        self.known = result.status or self.known
        return result

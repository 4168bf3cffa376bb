"""The runtime manager on the fake runtime: what the tests of its acting half drive."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kubeletpy.base.structs import replace
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.uses import ImageUses
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, PodSyncResult
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from tests.unit.images.fake_images import Events, FakeImages
from tests.unit.runtime_manager.fake_runtime import FakeRuntime
from tests.unit.runtime_manager.pods_and_records import IMAGE
from tests.virtual_time import LoopClock


@dataclass
class FakeNode:
    """A node in memory; make it inside a running loop."""

    directory: Path
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    images: FakeImages = field(default_factory=FakeImages)
    events: Events = field(default_factory=Events)
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

"""A runtime manager on a real containerd, without the rest of the agent: what its tests drive."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import SystemClock
from kubeletpy.images.image_manager import ImageManager, PullSettings
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod, PullSecret
from kubeletpy.pods.runtime_status import PodRuntimeStatus, PodSyncResult
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from tools.env.containerd import Containerd
from tools.env.images import BUSYBOX


class EventLog:
    """Remembers events as ``reason: message``."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def event(
        self, involved: api.ObjectReference, event_type: str, reason: str, message: str
    ) -> None:
        self.seen.append(f"{reason}: {message}")

    @property
    def reasons(self) -> list[str]:
        return [text.split(":", 1)[0] for text in self.seen]


@dataclass
class RuntimeNode:
    """The manager with all that a test inspects."""

    runtime: RemoteRuntime
    manager: KubeRuntimeManager
    events: EventLog
    metrics: Metrics
    directory: Path
    statuses: dict[str, PodRuntimeStatus] = field(default_factory=dict)

    async def sync(self, pod: Pod, *secrets: PullSecret) -> PodSyncResult:
        """One sync from what is known, as a pod worker does it."""
        status = self.statuses.get(pod.uid) or await self.refresh(pod)
        result = await self.manager.executor.sync_pod(
            SyncPodRequest(pod, status, pull_secrets=secrets)
        )
        if result.status is not None:
            self.statuses[pod.uid] = result.status
        return result

    async def refresh(self, pod: Pod) -> PodRuntimeStatus:
        """Read the pod's status from the runtime."""
        status = await self.manager.source.read_pod_status(pod.uid, pod.name, pod.namespace)
        self.statuses[pod.uid] = status
        return status

    async def until(
        self, pod: Pod, condition: Callable[[PodRuntimeStatus], bool]
    ) -> PodRuntimeStatus:
        """Poll the runtime until a condition holds."""
        async with asyncio.timeout(20):
            while not condition(status := await self.refresh(pod)):  # noqa: ASYNC110 - 1.6 has no events
                await asyncio.sleep(0.05)
        return status

    async def up(self, pod: Pod, *names: str) -> None:
        """Wait until containers have logged that they handle a stop signal."""
        logs = self.directory / "pods" / f"{pod.namespace}_{pod.name}_{pod.uid}"

        def logged_up() -> bool:
            return all("up" in (logs / name / "0.log").read_text() for name in names)

        async with asyncio.timeout(20):
            while not logged_up():  # noqa: ASYNC110 - a log file does not notify of its growth
                await asyncio.sleep(0.02)

    async def kill(self, pod: Pod | None, uid: str, grace: int | None = 2) -> PodSyncResult:
        """Stop a pod."""
        result = await self.manager.killer.kill_pod(pod, self.statuses[uid], grace)
        if result.status is not None:
            self.statuses[uid] = result.status
        return result


@asynccontextmanager
async def runtime_node(
    containerd: Containerd,
    directory: Path,
    cgroup_root: str,
    *,
    pulls: PullSettings | None = None,
    **options: Any,
) -> AsyncIterator[RuntimeNode]:
    """A fresh manager on a containerd, as after a start of the agent."""
    runtime = RemoteRuntime(f"unix://{containerd.socket}")
    try:
        await runtime.connect(20)
        events, metrics, clock = EventLog(), Metrics(), SystemClock()
        images = ImageManager(
            runtime, events, clock, metrics.images, settings=pulls or PullSettings()
        )
        hooks = LifecycleHookRunner(runtime, events, metrics.hooks)
        manager = KubeRuntimeManager(
            runtime,
            images,
            events,
            clock,
            metrics.starts,
            root_dir=str(directory / "root"),
            settings=RuntimeSettings(
                pod_logs_dir=str(directory / "pods"),
                container_logs_dir=str(directory / "containers"),
            ),
            **{"cgroup_parent": lambda pod: cgroup_root, "hooks": hooks, **options},
        )
        yield RuntimeNode(runtime, manager, events, metrics, directory)
        await manager.drain(10)
    finally:
        await runtime.close()


def make_pod(name: str, containers: list[dict[str, Any]], **spec: Any) -> Pod:
    """A pod as the API would deliver it."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": str(uuid.uuid4()),
        "annotations": spec.pop("annotations", {}),
        "labels": {"app": name},
    }
    for extra in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if extra in spec:
            metadata[extra] = spec.pop(extra)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "Default")
    return Pod(cast(Any, {"metadata": metadata, "spec": {"containers": containers, **spec}}))


def make_container(name: str, script: str = "", **more: Any) -> dict[str, Any]:
    """A busybox container that runs a shell script, by default one that waits to be ended."""
    script = script or "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done"
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **more,
    }

"""The verbs of a pod's life over the real rooms. Must never keep anything between two calls."""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.api_status import StatusWriter
from kubeletpy.podworkers.finish import finish
from kubeletpy.podworkers.protocol import StatusOverride, SyncOutcome, UpdateType
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.podworkers.sync import run_sync
from kubeletpy.podworkers.sync_context import SyncContext
from kubeletpy.podworkers.terminate import terminate, terminate_runtime_pod


class KubePodSyncer:
    """Implements :class:`~kubeletpy.podworkers.protocol.PodSyncer`."""

    def __init__(self, services: SyncServices) -> None:
        self._services = services
        self._writer = StatusWriter(services)

    async def sync_pod(
        self,
        update_type: UpdateType,
        pod: Pod,
        mirror: Pod | None,
        status: PodRuntimeStatus,
        is_terminating: Callable[[], bool],
    ) -> SyncOutcome:
        """Bring the runtime to what the pod asks for, and store its status."""
        return await run_sync(
            SyncContext(
                self._services, self._writer, update_type, pod, mirror, status, is_terminating
            )
        )

    def refresh_status(self, pod: Pod, mirror: Pod | None) -> None:
        """Make the pod's status anew from what is known, between its steps or while one runs."""
        status = self._services.cache.status(pod.uid)
        if status is not None and self._services.statuses.get_status(pod.uid) is not None:
            self._writer.store(pod, mirror, status)

    async def sync_terminating_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        grace: int,
        status_override: StatusOverride | None,
    ) -> SyncOutcome:
        """Stop everything of the pod within ``grace`` seconds."""
        return await terminate(
            self._services, self._writer, pod, status, grace=grace, override=status_override
        )

    async def sync_terminating_runtime_pod(self, status: PodRuntimeStatus) -> SyncOutcome:
        """Stop a pod that only the runtime knows."""
        return await terminate_runtime_pod(self._services, status)

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> SyncOutcome:
        """Release what the pod held and finish its status."""
        return await finish(self._services, self._writer, pod, status)

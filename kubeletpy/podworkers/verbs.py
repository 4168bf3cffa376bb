"""The three verbs of a pod's life, as its worker calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.protocol import StatusOverride, SyncOutcome


class PodSyncer(Protocol):
    """The three verbs of a pod's life; each may be called again until it succeeds."""

    async def sync_pod(
        self,
        pod: Pod,
        mirror: Pod | None,
        status: PodRuntimeStatus,
        is_terminating: Callable[[], bool],
    ) -> SyncOutcome:
        """Make the runtime match what the pod requests, and store its status."""
        ...

    async def sync_terminating_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        grace: int,
        status_override: StatusOverride | None,
    ) -> SyncOutcome:
        """Stop everything of the pod within ``grace`` seconds. No error means that nothing runs."""
        ...

    async def sync_terminating_runtime_pod(self, status: PodRuntimeStatus) -> SyncOutcome:
        """Stop a pod that only the runtime has."""
        ...

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> SyncOutcome:
        """Release what the pod held (volumes, cgroup) and finish its status."""
        ...

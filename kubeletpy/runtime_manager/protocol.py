"""The runtime manager as seen by the pod workers, the PLEG and housekeeping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import Mount, Pod, PullSecret
from kubeletpy.pods.runtime_status import (
    Decision,
    PodRuntimeStatus,
    PodSyncResult,
    ProbeResults,
    RuntimeHealth,
    RuntimePodSummary,
)


class SyncPodRequest(Struct, frozen=True):
    """All that one runtime sync bases its decisions on."""

    pod: Pod
    status: PodRuntimeStatus
    probes: ProbeResults = field(default_factory=ProbeResults)
    pull_secrets: Sequence[PullSecret] = ()
    volume_mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    """Container name -> mounts that the volume manager prepared."""
    shown: api.PodStatus | None = None
    """The status that the API has or is about to get; None: not known."""
    on_sandbox_ready: Callable[[PodRuntimeStatus], None] | None = None
    """Called once the new sandbox and its IPs are there, before any container starts."""
    on_plan: Callable[[Sequence[Decision]], None] = lambda decisions: None
    """Called with what will be done and why, before it is done; the result has only what is new."""
    is_terminating: Callable[[], bool] = lambda: False
    """Whether termination was requested meanwhile: the sync then starts nothing more."""
    reported: Callable[[], bool] = lambda: True
    """Whether the API has ``status``: records that it still needs are kept until then."""


class RuntimeManager(Protocol):
    """Makes the runtime run what a pod requests, and reads back what runs."""

    async def sync_pod(self, request: SyncPodRequest) -> PodSyncResult:
        """Compute the plan and carry it out. Never raises for what a pod can cause."""
        ...

    async def kill_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        grace_override: int | None,
        on_stopped: Callable[[PodRuntimeStatus], None] | None = None,
    ) -> PodSyncResult:
        """Stop all containers (in parallel, sidecars last) and all sandboxes of a pod.

        ``pod`` is None for a pod that only the runtime has. ``grace_override``, in seconds,
        replaces the pod's own grace period. ``on_stopped`` is called with how the containers ended
        while the sandboxes are being stopped.
        """
        ...

    async def get_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        """Read all that the runtime has of a pod. Raises remote.errors.CRIError."""
        ...

    async def list_pods(self) -> list[RuntimePodSummary]:
        """Every pod the runtime has, dead ones included. Raises remote.errors.CRIError."""
        ...

    async def delete_container(self, container_id: str) -> None:
        """Remove one dead container with its log link. Raises remote.errors.CRIError."""
        ...

    async def has_containers(self, uid: str) -> bool:
        """Whether the runtime has any container of a pod, dead or alive. Raises CRIError."""
        ...

    async def collect_garbage(
        self,
        *,
        all_sources_ready: bool,
        removable: Callable[[str], bool],
        reported: Callable[[str], bool] = lambda uid: True,
    ) -> int:
        """Remove dead containers and sandboxes beyond what is kept; returns how many containers.

        ``removable(pod_uid)`` states whether everything of that pod may go (docs: GC and eviction),
        ``reported(pod_uid)`` whether the API has how its containers ended.
        """
        ...

    async def health(self) -> RuntimeHealth:
        """Query the runtime's health. Never raises."""
        ...

    @property
    def runtime_name(self) -> str:
        """The runtime's name, as container ids carry it: ``containerd``, ``cri-o``."""
        ...

"""One runtime sync in progress: what was requested, and what it has done.

Must never act itself.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.kubeapi.events.recorder import pod_reference
from kubeletpy.pods.pod import Pod, field_path
from kubeletpy.pods.runtime_status import PodRuntimeStatus, StartError, SyncAction, SyncResult
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.draft import StatusDraft
from kubeletpy.runtime_manager.plan.actions import PodActions, StartContainer
from kubeletpy.runtime_manager.protocol import SyncPodRequest


class StopSync(Exception):
    """The rest of this sync must not happen; the results state why."""


class SyncRun(Struct):
    """One sync in progress."""

    request: SyncPodRequest
    status: PodRuntimeStatus
    """The status that the plan was based on."""
    plan: PodActions
    draft: StatusDraft
    sandbox_id: str
    pod_ips: tuple[str, ...]
    sandbox_config: cri.PodSandboxConfig = field(default_factory=cri.PodSandboxConfig)
    """That of the sandbox, once containers are to start in it."""
    results: list[SyncResult] = field(default_factory=list)
    start_errors: dict[str, StartError] = field(default_factory=dict)
    sync_error: StartError | None = None
    retry_at: float | None = None
    resized: list[str] = field(default_factory=list)
    """Containers whose limits were changed in place."""
    resize_done: bool = False
    """All planned in-place changes were made."""
    resize_error: str = ""

    @property
    def pod(self) -> Pod:
        """The pod being synced."""
        return self.request.pod

    def reference(self, action: StartContainer) -> api.ObjectReference:
        """The container, as events name it."""
        return pod_reference(self.pod, field_path(action.kind, action.name))

    def add(
        self, action: SyncAction, target: str, error: StartError | None = None, why: str = ""
    ) -> None:
        """Record the outcome of a step."""
        self.results.append(SyncResult(action, target, error, why))

    def retry(self, at: float | None) -> None:
        """Record when a retry makes sense; the earliest counts."""
        if at is not None:
            self.retry_at = at if self.retry_at is None else min(self.retry_at, at)

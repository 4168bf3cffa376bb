"""What the steps of one sync hand on to each other. Must never decide anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeletpy.events.recorder import WARNING, pod_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.api_status import StatusWriter
from kubeletpy.podworkers.protocol import SyncOutcome, UpdateType
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.runtime_manager.protocol import Mount, PullSecret
from kubeletpy.runtime_manager.results import Decision


@dataclass(slots=True)
class SyncContext:
    """What the steps of one sync hand on."""

    services: SyncServices
    writer: StatusWriter
    update_type: UpdateType
    pod: Pod
    mirror: Pod | None
    status: PodRuntimeStatus
    is_terminating: Callable[[], bool]
    mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    pull_secrets: Sequence[PullSecret] = ()
    told: list[Decision] = field(default_factory=list)

    def planned(self, decisions: Sequence[Decision]) -> None:
        """Tell at once what is going to be done, and why."""
        self.told += decisions
        self.services.decided(self.pod.uid, decisions)

    def warn(self, reason: str, message: str) -> None:
        """A Warning event on the pod."""
        self.services.recorder.event(pod_reference(self.pod), WARNING, reason, message)


SyncStep = Callable[[SyncContext], Awaitable[SyncOutcome | None]]
"""One step; an outcome ends the sync."""

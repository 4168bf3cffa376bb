"""The interfaces of pod workers: their messages, their reports, and the verbs they call. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import MachineFault
from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus, SpecField
from kubeletpy.resources.admission.checks import Rejection


class UpdateType(StrEnum):
    """Why a worker is woken (values: the kubelet's ``operation_type``)."""

    CREATE = "create"
    UPDATE = "update"
    SYNC = "sync"
    KILL = "kill"


StatusOverride = Callable[[api.PodStatus], api.PodStatus]
"""Changes the status of a pod being killed (eviction, preemption); pure."""


class KillOptions(Struct, frozen=True):
    """How a pod is to be killed."""

    grace_override: int | None = None
    """Seconds; can only shorten the grace period."""
    evict: bool = False
    status_override: StatusOverride | None = None


class PodUpdate(Struct, frozen=True):
    """One message to a pod's worker. The latest wins; a termination is never lost or undone."""

    type: UpdateType
    pod: Pod | None = None
    """None only with ``runtime_pod``."""
    mirror: Pod | None = None
    runtime_pod: PodRuntimeStatus | None = None
    """A pod that only the runtime has: it can only be killed."""
    kill: KillOptions | None = None
    received_at: float = 0.0
    """Event-loop seconds at which the cause was seen."""


class SyncOutcome(Struct, frozen=True):
    """The outcome of one worker run."""

    terminal: bool = False
    """The pod has run to its end: terminate it."""
    error: str = ""
    retry_at: float | None = None
    """Unix seconds at which a retry makes sense (end of a backoff); None: the worker decides."""
    deadline: float | None = None
    """Unix seconds at which activeDeadlineSeconds ends the pod: it is synced then, too."""
    network_not_ready: bool = False
    step: Step | None = None
    """The step that failed; None without an error."""
    about: SpecField | None = None
    """The field of the spec that the error is about, where that is distinguished."""
    fault: MachineFault | None = None
    """The machine's fault behind the error, such as a full disk."""
    waiting: bool = False
    """The only failures are backoffs that have not ended."""
    decisions: tuple[Decision, ...] = ()
    status_override: StatusOverride | None = None
    """With ``terminal``: for the pod's final status."""


class PodStatuses(Protocol):
    """A worker's reports about its pod outside its syncs."""

    def refresh(self, pod: Pod, mirror: Pod | None, override: StatusOverride | None = None) -> None:
        """Recompose the status from what is known, if there is one already."""
        ...

    def reject(self, pod: Pod, rejection: Rejection) -> None:
        """The status of a pod that this node refuses to run."""
        ...


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

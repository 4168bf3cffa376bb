"""The data that pod workers take and return: messages, and the outcomes of syncs. Pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause
from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Step
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus


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
    cause: Cause | None = None
    """Why it failed, as data, where advice depends on it."""
    waiting: bool = False
    """The only failures are backoffs that have not ended."""
    decisions: tuple[Decision, ...] = ()
    status_override: StatusOverride | None = None
    """With ``terminal``: for the pod's final status."""

"""The results of a runtime sync or a kill: plain data for status and worker.

Must never decide anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kubeletpy.base.host.errors import MachineFault
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.config_errors import SpecField
from kubeletpy.pods.decision import Decision
from kubeletpy.pods.runtime_status import PodRuntimeStatus


class SyncAction(StrEnum):
    """The steps of a runtime sync, by the kubelet's names."""

    START_CONTAINER = "StartContainer"
    KILL_CONTAINER = "KillContainer"
    REMOVE_CONTAINER = "RemoveContainer"
    CREATE_POD_SANDBOX = "CreatePodSandbox"
    KILL_POD_SANDBOX = "KillPodSandbox"
    INIT_CONTAINER = "InitContainer"
    RESIZE_POD_IN_PLACE = "ResizePodInPlace"


class StartError(Struct, frozen=True):
    """Why a container was not started; ``code`` is the waiting reason that kubectl shows."""

    code: str
    """CrashLoopBackOff, ErrImagePull, ImagePullBackOff, CreateContainerConfigError, …"""
    message: str
    retry_at: float | None = None
    """Unix seconds at which its backoff ends, if it has one."""
    cause: str = ""
    """Why the previous attempt failed, where a backoff reports it."""
    about: SpecField | None = None
    """The field of the spec that it is about, where that is distinguished."""
    fault: MachineFault | None = None
    """The machine's fault behind it, such as a full disk."""
    mounted_image: str = ""
    """The image that could not be had, where it is one that the container mounts as a volume."""


class SyncResult(Struct, frozen=True):
    """The outcome of one step on one target."""

    action: SyncAction
    target: str
    """Container name, or the pod for sandbox steps."""
    error: StartError | None = None
    """None: it succeeded."""
    reason: str = ""
    """Why the step was taken, for people."""


class ResizeOutcome(Struct, frozen=True):
    """The result of reconciling the resources in effect with those the pod should have."""

    in_progress: bool
    """Some part of the pod still runs with resources other than it should have."""
    error: str = ""
    """Why; empty when nothing went wrong."""
    done: tuple[str, ...] = ()
    """Containers whose limits were changed in place."""


class PodSyncResult(Struct, frozen=True):
    """Everything that one runtime sync (or kill) did."""

    results: tuple[SyncResult, ...] = ()
    decisions: tuple[Decision, ...] = ()
    sync_error: StartError | None = None
    """A failure of no single step (the runtime is absent, the configuration is impossible)."""
    retry_at: float | None = None
    """Unix seconds at which the earliest backoff of this sync ends."""
    status: PodRuntimeStatus | None = None
    """The pod as the runtime has it after the last step; None when nothing was done and the sync's
    input is still accurate."""
    start_errors: Mapping[str, StartError] = field(default_factory=dict)
    """Container name -> why its start failed or was held back in this sync."""
    ended: bool = False
    """The pod was stopped for good: nothing of it may run any more, nor what has never run."""
    resize: ResizeOutcome | None = None
    """None: everything that runs already had the resources it should have."""

    @property
    def acted(self) -> bool:
        """Whether there is a new status: something was changed, by this call or an earlier one."""
        return self.status is not None

    @property
    def failed(self) -> bool:
        """Whether anything failed, backoff included."""
        return self.sync_error is not None or any(r.error is not None for r in self.results)

    def about(self) -> SpecField | None:
        """The field of the spec that a failure of the whole pod is about."""
        errors = [self.sync_error, *(step.error for step in self.results)]
        return next((each.about for each in errors if each is not None and each.about), None)

    def fault(self) -> MachineFault | None:
        """The machine's fault behind the first failure that has one."""
        errors = [self.sync_error, *(step.error for step in self.results)]
        return next((each.fault for each in errors if each is not None and each.fault), None)

    def error_message(self) -> str:
        """All failures on one line; empty when there were none."""
        parts = [] if self.sync_error is None else [self.sync_error.message]
        parts += [
            f"failed to {r.action} for {r.target} with {r.error.code}: {r.error.message}"
            for r in self.results
            if r.error is not None
        ]
        return "; ".join(parts)


class SyncIntent(Struct, frozen=True):
    """The planned actions of a runtime sync, by names of containers."""

    decisions: tuple[Decision, ...]
    ends: bool = False
    """The pod would be stopped, without a new sandbox."""
    new_sandbox: bool = False
    stopped: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    """In place."""

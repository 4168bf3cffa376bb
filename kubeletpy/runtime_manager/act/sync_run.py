"""One runtime sync in progress: what was requested, what it has done, and the pod's status now.

Must never change the runtime itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause, cause_of
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note
from kubeletpy.pods import runtime_status
from kubeletpy.pods.pod import Pod, field_path
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.plan.actions import PodActions, StartContainer
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from kubeletpy.runtime_manager.read.status_reader import (
    PodIdentity,
    ReadContainer,
    pod_status_from_cri,
)
from kubeletpy.runtime_manager.read.status_source import StatusSource


def unreadable(error: CRIError) -> runtime_status.PodSyncResult:
    """The result of a sync of a pod whose state could not be read from the runtime."""
    failure = runtime_status.StartError("RuntimeStatusError", str(error))
    return runtime_status.PodSyncResult(sync_error=failure)


class StatusDraft(Component):
    """A working copy of a PodRuntimeStatus, kept up to date during one sync or kill.

    Avoids relisting: the agent's own changes are recorded, and only containers that it changed are
    queried, once, at the end.
    """

    status: runtime_status.PodRuntimeStatus

    def __post_init__(self) -> None:
        self._sandboxes = {sandbox.id: sandbox for sandbox in self.status.sandboxes}
        self._containers = {container.id: container for container in self.status.containers}
        self._touched: dict[str, str] = {}
        self._ended: dict[str, ReadContainer] = {}
        """Touched containers that were seen to have ended: they are not queried again."""
        self.changed = False
        """Whether a change was requested of the runtime."""

    def sandbox_ready(self, sandbox: runtime_status.SandboxStatus) -> None:
        """A sandbox was made."""
        self.changed = True
        self._sandboxes[sandbox.id] = sandbox

    def sandbox_stopped(self, sandbox_id: str) -> None:
        """A sandbox was stopped."""
        self.changed = True
        if sandbox_id in self._sandboxes:
            self._sandboxes[sandbox_id] = replace(self._sandboxes[sandbox_id], ready=False)

    def touch(self, container_id: str, sandbox_id: str) -> None:
        """A container was created, started or stopped: its state must be queried."""
        self.changed = True
        self._touched[container_id] = sandbox_id
        self._ended.pop(container_id, None)

    def removed(self, container_id: str) -> None:
        """A container's record was removed."""
        self.changed = True
        self._touched.pop(container_id, None)
        self._ended.pop(container_id, None)
        self._containers.pop(container_id, None)

    def now(self, observed_at: int) -> runtime_status.PodRuntimeStatus:
        """The status as recorded, without a call to the runtime."""
        return self._build(self._containers.values(), observed_at)

    async def finished(self, source: StatusSource) -> runtime_status.PodRuntimeStatus:
        """The status after everything done so far.

        Raises:
            CRIError: a touched container could not be queried.
        """
        observed_at = source.now()
        unread = [pair for pair in self._touched.items() if pair[0] not in self._ended]
        read = [*self._ended.values(), *await source.read_containers(unread)]
        ended = [one for one in read if one.status.state == cri.CONTAINER_EXITED]
        self._ended = {one.status.id: one for one in ended}
        untouched = [c for c in self._containers.values() if c.id not in self._touched]
        return self._build([*untouched, *read], observed_at)

    async def read_back(
        self, source: StatusSource, *, certain: bool
    ) -> tuple[runtime_status.PodRuntimeStatus | None, runtime_status.StartError | None]:
        """The status after all calls, or None if nothing was changed; why it could not be read.

        ``certain``: no call has failed.
        """
        if not self.changed:
            return None, None
        before = self.status
        try:
            if certain:
                return await self.finished(source), None
            # A failed call may have had its effect anyway: a sandbox that nobody has recorded.
            return await source.read_pod_status(before.uid, before.name, before.namespace), None
        except CRIError as error:
            # The effect of the calls is unknown: an old time makes the next sync read it.
            return self.now(before.observed_at), unreadable(error).sync_error

    def _build(
        self, containers: Iterable[ReadContainer | runtime_status.ContainerStatus], observed_at: int
    ) -> runtime_status.PodRuntimeStatus:
        status = self.status
        identity = PodIdentity(status.uid, status.name, status.namespace, status.labels)
        return pod_status_from_cri(identity, self._sandboxes.values(), containers, observed_at)


class StopSync(Exception):
    """The rest of this sync must not happen; the results state why."""


class NotDesired(Exception):
    """The pod is to end: nothing was created."""


class SyncRun(Struct):
    """One sync in progress."""

    request: SyncPodRequest
    status: runtime_status.PodRuntimeStatus
    """The status that the plan was based on."""
    plan: PodActions
    draft: StatusDraft
    sandbox_id: str
    pod_ips: tuple[str, ...]
    sandbox_config: cri.PodSandboxConfig = field(default_factory=cri.PodSandboxConfig)
    """That of the sandbox, once containers are to start in it."""
    results: list[runtime_status.SyncResult] = field(default_factory=list)
    start_errors: dict[str, runtime_status.StartError] = field(default_factory=dict)
    sync_error: runtime_status.StartError | None = None
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
        self,
        action: runtime_status.SyncAction,
        target: str,
        error: runtime_status.StartError | None = None,
        why: str = "",
    ) -> None:
        """Record the outcome of a step."""
        self.results.append(runtime_status.SyncResult(action, target, error, why))

    def retry(self, at: float | None) -> None:
        """Record when a retry makes sense; the earliest counts."""
        if at is not None:
            self.retry_at = at if self.retry_at is None else min(self.retry_at, at)


# The starts of one sync: their order, and the report of one that fails

CONFIG_ERROR = "CreateContainerConfigError"
CREATE_ERROR = "CreateContainerError"
RUN_ERROR = "RunContainerError"
POST_START_ERROR = "PostStartHookError"


class StartFailed(Exception):
    """A step of a start failed."""

    def __init__(
        self,
        code: str,
        message: str,
        retry_at: float | None = None,
        *,
        reported_retry_at: float | None = None,
        cause: Cause | None = None,
    ) -> None:
        """``reported_retry_at``: when it is tried again, where that is another time."""
        super().__init__(message)
        reported = retry_at if reported_retry_at is None else reported_retry_at
        self.error = runtime_status.StartError(code, message, reported, cause=cause)
        self.retry_at = retry_at


class Turn(Struct):
    """A container's place in the order of creation."""

    after: asyncio.Event | None = None
    """Set when the container before it has been created, or never will be."""
    created: asyncio.Event = field(default_factory=asyncio.Event)


def fail(
    recorder: EventRecorder,
    run: SyncRun,
    action: StartContainer,
    code: str,
    message: str,
    *,
    error: Exception | None = None,
) -> NoReturn:
    """End a start with an event; ``error``: what was raised, if it was ours. Raises StartFailed."""
    recorder.event(run.reference(action), WARNING, Reason.FAILED, f"Error: {message}")
    if code == CONFIG_ERROR:  # no failed call would show it
        note(TraceCall.CREATE_CONTAINER, action.name, error=f"{code}: {message}")
    raise StartFailed(code, message, cause=cause_of(error)) from error


def ended_in_their_start(
    errors: Mapping[str, runtime_status.StartError], after: runtime_status.PodRuntimeStatus
) -> Iterator[float]:
    """When (Unix seconds) containers ended whose start failed after they were created.

    No event reports an end that we caused ourselves: these containers must be checked again, like
    any that has crashed. Their backoff, which counts from their end, holds them back.
    """
    for name, error in errors.items():
        record = after.newest(name)
        if (
            error.code in (RUN_ERROR, POST_START_ERROR)
            and record is not None
            and record.state is runtime_status.ContainerState.EXITED
            and record.finished_at > 0
        ):
            yield record.finished_at / 1e9

"""The order of one sync's starts, and the report of a start that fails.

Must never start anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import NoReturn

from kubeletpy.base.host.errors import MachineFault, machine_fault
from kubeletpy.base.structs import Struct, field
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus, SpecField, StartError
from kubeletpy.pods.runtime_status import about as about_field
from kubeletpy.runtime_manager.act.sync_run import SyncRun
from kubeletpy.runtime_manager.plan.actions import StartContainer

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
        about: SpecField | None = None,
        shown_retry_at: float | None = None,
        fault: MachineFault | None = None,
    ) -> None:
        """``shown_retry_at``: when it is tried again, where that is another time."""
        super().__init__(message)
        shown = retry_at if shown_retry_at is None else shown_retry_at
        self.error = StartError(code, message, shown, about=about, fault=fault)
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
    of_machine = machine_fault(error)
    spec_field = None if error is None else about_field(error)
    raise StartFailed(code, message, about=spec_field, fault=of_machine) from error


def ended_in_their_start(
    errors: Mapping[str, StartError], after: PodRuntimeStatus
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
            and record.state is ContainerState.EXITED
            and record.finished_at > 0
        ):
            yield record.finished_at / 1e9

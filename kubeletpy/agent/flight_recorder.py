"""Builds the flight recorder.

Apart: the core imports no code that only observes pods, and gets just callbacks from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.agent.context import Component, Task
from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct
from kubeletpy.config import NodeFlags
from kubeletpy.metrics.trace.spans import SpanLog
from kubeletpy.podworkers.records import Effect, Event
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import PlanInputs
from kubeletpy.status.generate import StatusInputs

_MIB = 1 << 20


class Flight(Struct, frozen=True):
    """The recorder's callbacks; all None without a recorder."""

    components: tuple[Component, ...] = ()
    event: Callable[[Event, Sequence[Effect]], None] | None = None
    plan: Callable[[PlanInputs, PodActions], None] | None = None
    status: Callable[[StatusInputs, api.PodStatus], None] | None = None
    span: SpanLog | None = None


def build_flight_recorder(
    flags: NodeFlags, clock: Clock, machine: WorkerMachine, root: Path, node_name: str
) -> Flight:
    """The recorder, unless --flight-recorder-mib is 0."""
    if flags.flight_recorder_mib <= 0:
        return Flight()
    from kubeletpy.observe.recorder.files import DIRECTORY, RecordingFiles
    from kubeletpy.observe.recorder.recorder import FlightRecorder

    files = RecordingFiles(root / DIRECTORY, flags.flight_recorder_mib * _MIB)
    recorder = FlightRecorder(files, clock, machine, node_name)
    component = Component(recorder, (Task("flight-recorder", recorder.run),), close=recorder.close)
    return Flight((component,), recorder.event, recorder.plan, recorder.status, recorder.span)

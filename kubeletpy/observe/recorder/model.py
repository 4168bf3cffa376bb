"""The lines of recordings: their kinds, the reduced outputs of decisions, and which are new. Pure.

A recording is lines of JSON. Each has its kind ``k`` and, but for shared objects, the Unix seconds
``t`` and the ``uid`` of its pod. The outputs of decisions are reduced to texts and names: the rest
of them follows from the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import structs

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers import records as podworkers_records
from kubeletpy.podworkers.state_machine import (
    NamesInUse,
    RequeueSettings,
    StaticNames,
    WorkerMachine,
)
from kubeletpy.runtime_manager.plan.actions import PodActions

FORMAT = 1
"""Format version of the lines; a reader refuses others."""


class LineKind(StrEnum):
    """Kind of a line in a recording."""

    HEAD = "head"
    """The first one of each file: format, version, node, and the state of the workers' machine."""
    SHARED = "shared"
    """A pod or a runtime status, with the number by which others refer to it."""
    EVENT = "event"
    """A message to a worker, and its effects."""
    PLAN = "plan"
    """The plan of a sync."""
    STATUS = "status"
    """A status composed for the API."""
    SPAN = "span"
    """A step or a call that has ended."""


EVENTS: Mapping[str, type[podworkers_records.Event]] = {
    each.__name__: each
    for each in (
        podworkers_records.UpdateArrived,
        podworkers_records.SyncEnded,
        podworkers_records.TimerFired,
        podworkers_records.DesiredPods,
        podworkers_records.StatusOutdated,
        podworkers_records.PodRejected,
    )
}


class MachineState(Struct, frozen=True):
    """The state of the workers' machine."""

    settings: RequeueSettings
    records: Mapping[str, podworkers_records.WorkerRecord]
    names: NamesInUse
    synced: bool


def machine_state(machine: WorkerMachine) -> MachineState:
    """Return the current state of a machine."""
    return MachineState(
        machine.settings, dict(machine.records), machine.names.in_use(), machine.synced
    )


def restored_machine(state: MachineState) -> WorkerMachine:
    """Return a machine that continues from a state."""
    machine = WorkerMachine(state.settings)
    machine.records = dict(state.records)
    machine.names = StaticNames(state.names)
    machine.synced = state.synced
    return machine


def effects_output(effects: Sequence[podworkers_records.Effect]) -> list[Any]:
    """Return the name and the plain values of each effect."""
    return [[type(effect).__name__, _plain(effect)] for effect in effects]


def _plain(effect: podworkers_records.Effect) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: value
        for name, value in structs.asdict(effect).items()
        if isinstance(value, str | int | float)
    }
    if isinstance(effect, podworkers_records.WakeAfter):
        found["delay"] = round(effect.delay, 6)
    if isinstance(effect, podworkers_records.RunSync):
        found |= {"stage": effect.stage.value, "type": effect.work.type.value}
    return found


def plan_output(actions: PodActions) -> dict[str, Any]:
    """Return the actions of a plan by names, and the texts of its decisions."""
    found: dict[str, Any] = {
        "kill_pod": actions.kill_pod_reason if actions.kill_pod else None,
        "create_sandbox": actions.attempt if actions.create_sandbox else None,
        "kill": [[kill.name, kill.id, kill.reason.value] for kill in actions.containers_to_kill],
        "reset": [[reset.name, reset.id, reset.kill] for reset in actions.containers_to_reset],
        "resize": [
            [update.name, update.resource, update.desired]
            for update in (*actions.resize.memory, *actions.resize.cpu)
        ],
        "start": [[start.kind.value, start.name] for start in actions.starts],
        "decisions": [[each.what, each.why] for each in actions.decisions],
    }
    return {key: value for key, value in found.items() if value not in (None, [])}


class Changes:
    """Finds decisions that differ from the last one about the same pod and the same containers.

    Each pod is synced once a minute, and nearly always nothing has changed; encoding the inputs of
    these decisions would cost as much as making them. For each pod the last decisions are kept
    with the objects that they were made about.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[LineKind, tuple[Pod, PodRuntimeStatus, object]]] = {}

    def has(self, kind: LineKind, pod: Pod, status: PodRuntimeStatus, out: object) -> bool:
        """Return whether a decision or its objects differ from the pod's last one of that kind.

        ``out``: the decision, comparable.
        """
        pod_decisions = self._last.setdefault(pod.uid, {})
        before = pod_decisions.get(kind)
        if before is not None and before[0] is pod and before[1] is status and before[2] == out:
            return False
        pod_decisions[kind] = pod, status, out
        return True

    def removed(self, uid: str) -> None:
        """Drop the decisions about a pod that has been removed."""
        self._last.pop(uid, None)

    def begin(self) -> None:
        """Drop all decisions, so that a new file can be read without those before it."""
        self._last.clear()

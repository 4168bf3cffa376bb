"""The lines of recordings: kinds, outputs, which are new, and the JSON of inputs. Pure.

A recording is lines of JSON. Each has its kind ``k`` and, but for shared objects, the Unix seconds
``t`` and the ``uid`` of its pod. The outputs of decisions are reduced to texts and names: the rest
of them follows from the inputs.

The inputs are encoded and decoded by the types of their fields. Fields that equal their default are
left out. Pods and runtime statuses are large and occur again and again: they are written once and
referred to by number. A function (a status override) is recorded by its presence only: the decoded
one returns its argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import NODEFAULT, ValidationError, convert, structs

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import MalformedPod, Pod
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


SHARED = (Pod, PodRuntimeStatus)
"""Types that are referred to by number."""
Refer = Callable[[Pod | PodRuntimeStatus], int]
"""Returns the number of a value of one of these types."""
REFERENCE = "#"
_PLAIN = (str, int, float, bool, type(None))
_MAPPINGS, _SEQUENCES = (dict, Mapping), (list, tuple, Sequence)
"""The abstract types last: their checks are slow."""
FUNCTION = {"function": True}


class BadRecording(ValueError):
    """Raised if the input is no recording, or not one that this version understands."""


def encode(value: object, refer: Refer) -> Any:
    """Return a value as JSON.

    Args:
        refer: the number of a value of one of the types in SHARED.

    Raises:
        TypeError: a type that no input of a decision has.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, SHARED):
        return {REFERENCE: refer(value)}
    if isinstance(value, Struct):
        return encode_fields(value, refer)
    if isinstance(value, _MAPPINGS):
        return {
            str(key): each if type(each) in _PLAIN else encode(each, refer)
            for key, each in value.items()
        }
    if isinstance(value, _SEQUENCES):
        return [encode(each, refer) for each in value]
    if isinstance(value, Set):
        return sorted(encode(each, refer) for each in value)
    if callable(value):
        return FUNCTION
    raise TypeError(f"{type(value).__name__} is no input of a decision")


def encode_fields(value: Struct, refer: Refer) -> dict[str, Any]:
    """Return a Struct as JSON, even one that would be referred to by number."""
    found = {}
    for name, default, is_json in _fields(type(value)):
        current = getattr(value, name)
        if current != default:
            found[name] = current if is_json else encode(current, refer)
    return found


@lru_cache(maxsize=200)
def _fields(kind: type[Struct]) -> tuple[tuple[str, Any, bool], ...]:
    """Return the name of each field, its default, and whether it has an object of the API."""
    return tuple(
        (
            each.name,
            each.default if each.default_factory is NODEFAULT else each.default_factory(),
            each.type == dict[str, Any],
        )
        for each in structs.fields(kind)
    )


def decode(kind: Any, value: Any, shared: Mapping[int, object]) -> Any:
    """Return the value of a type from its JSON; the opposite of :func:`encode`.

    Fields that this version does not have are left out.

    Args:
        kind: the type, as an annotation gives it.
        value: JSON.
        shared: what the numbers refer to.

    Raises:
        BadRecording: the JSON does not describe a value of this type.
    """
    try:
        return convert(_resolved(value, shared), kind, dec_hook=_decode_other)
    except ValidationError as error:
        raise BadRecording(f"{getattr(kind, '__name__', kind)}: {error}") from error


def _resolved(value: Any, shared: Mapping[int, object]) -> Any:
    """Return JSON with the objects that it refers to by number."""
    if isinstance(value, dict):
        number = value.get(REFERENCE)
        if type(number) is int and number in shared:
            return shared[number]
        return {key: _resolved(each, shared) for key, each in value.items()}
    return [_resolved(each, shared) for each in value] if isinstance(value, list) else value


def _decode_other(kind: type, value: Any) -> Any:
    """Return a value of a type that msgspec does not decode: a pod, or a function."""
    if kind is Pod:
        if isinstance(value, Pod):
            return value
        raise ValueError("a Pod is referred to that the recording does not have")
    return lambda argument: argument


def decode_shared(name: str, value: Any) -> Pod | PodRuntimeStatus:
    """Return the value that a line with a number has.

    Raises:
        BadRecording: it is none of the types in SHARED.
    """
    if name == Pod.__name__:
        try:
            return Pod(value)
        except (MalformedPod, AttributeError, TypeError) as error:
            raise BadRecording(f"a pod of the recording: {error}") from error
    if name == PodRuntimeStatus.__name__:
        status: PodRuntimeStatus = decode(PodRuntimeStatus, value, {})
        return status
    raise BadRecording(f"{name} is not known to this version")

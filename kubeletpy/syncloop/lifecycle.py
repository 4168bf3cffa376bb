"""Events of a pod between two relists of the runtime (docs/reference/behaviour.md, a3).

Pure. Sandboxes count as containers here: a ready one runs, another has exited.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus, RuntimePodSummary


class LifecycleType(StrEnum):
    """Kinds of events, named as in the kubelet."""

    STARTED = "ContainerStarted"
    DIED = "ContainerDied"
    REMOVED = "ContainerRemoved"
    CHANGED = "ContainerChanged"
    """Some other state: nothing acts on it, but the status is read again."""


class LifecycleEvent(Struct, frozen=True):
    """One thing that happened to a container or sandbox of a pod."""

    uid: str
    type: LifecycleType
    container_id: str


def diff(old: RuntimePodSummary | None, new: RuntimePodSummary | None) -> list[LifecycleEvent]:
    """The events of one pod between two relists; None: the runtime had nothing of it."""
    named = old or new
    if named is None:
        return []
    before, after = _states(old), _states(new)
    events: list[LifecycleEvent] = []
    for container_id in sorted(before.keys() | after.keys()):
        for kind in _kinds(before.get(container_id), after.get(container_id)):
            events.append(LifecycleEvent(named.uid, kind, container_id))
    return events


def summarise(status: PodRuntimeStatus) -> RuntimePodSummary:
    """A full status cut down to what a relist shows."""
    return RuntimePodSummary(
        uid=status.uid,
        name=status.name,
        namespace=status.namespace,
        sandboxes={sandbox.id: sandbox.ready for sandbox in status.sandboxes},
        containers={container.id: container.state for container in status.containers},
    )


def agrees(status: PodRuntimeStatus, summary: RuntimePodSummary) -> bool:
    """Whether a known status already states what a relist shows: no need to check again."""
    known = summarise(status)
    return known.sandboxes == summary.sandboxes and known.containers == summary.containers


def worth_waking(events: Iterable[LifecycleEvent]) -> bool:
    """Whether a worker has anything to do after these events."""
    return any(e.type in (LifecycleType.STARTED, LifecycleType.DIED) for e in events)


def _states(pod: RuntimePodSummary | None) -> dict[str, ContainerState]:
    if pod is None:
        return {}
    states = {
        sandbox_id: ContainerState.RUNNING if ready else ContainerState.EXITED
        for sandbox_id, ready in pod.sandboxes.items()
    }
    for container_id, state in pod.containers.items():
        states[container_id] = ContainerState.UNKNOWN if state is ContainerState.CREATED else state
    return states


def _kinds(old: ContainerState | None, new: ContainerState | None) -> tuple[LifecycleType, ...]:
    if old is new:
        return ()
    match new:
        case ContainerState.RUNNING:
            return (LifecycleType.STARTED,)
        case ContainerState.EXITED:
            return (LifecycleType.DIED,)
        case None if old is ContainerState.EXITED:
            return (LifecycleType.REMOVED,)
        case None:
            return (LifecycleType.DIED, LifecycleType.REMOVED)
        case _:
            return (LifecycleType.CHANGED,)

"""The events in the life of a pod, and which pods use the node (docs/reference/behaviour.md, a3).

Pure. Sandboxes count as containers here: a ready one runs, another has exited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus, RuntimePodSummary
from kubeletpy.podworkers.state_machine import WorkerQueries


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


_ORDER = (
    ContainerState.UNKNOWN,
    ContainerState.CREATED,
    ContainerState.RUNNING,
    ContainerState.EXITED,
)


def goes_forward(known: PodRuntimeStatus | None, event: PodRuntimeStatus) -> bool:
    """Whether the status of a CRI event can follow the known status; if not, query the runtime.

    An event carries the pod's status as it was just before the event was stamped, and only the
    containers of one sandbox; a status read meanwhile may contain more. A running container must
    never vanish, nor an exited one come back.
    """
    if known is None:
        return True
    sandboxes = {sandbox.id: sandbox for sandbox in event.sandboxes}
    for sandbox in known.sandboxes:
        later = sandboxes.get(sandbox.id)
        if later is None or (later.ready and not sandbox.ready):
            return False
    containers = {container.id: container for container in event.containers}
    for container in known.containers:
        newer = containers.get(container.id)
        if newer is None or _ORDER.index(newer.state) < _ORDER.index(container.state):
            return False
    return True


def without(known: PodRuntimeStatus, removed_id: str, at: int) -> PodRuntimeStatus:
    """The known status without a container or sandbox that was removed at ``at``.

    ``at``: nanoseconds, like ``observed_at``. A sandbox takes its containers with it.
    """
    return replace(
        known,
        sandboxes=tuple(s for s in known.sandboxes if s.id != removed_id),
        containers=tuple(c for c in known.containers if removed_id not in (c.id, c.sandbox_id)),
        observed_at=max(at, known.observed_at),
    )


class ActivePods(Component):
    """The pods that use the node, as of each call: those that have not ended or been refused."""

    pods: PodManager
    workers: WorkerQueries
    # Returns the newest status of a pod, by UID.
    get_status: Callable[[str], api.PodStatus | None]

    def __call__(self) -> list[Pod]:
        """The active pods of the node."""
        return self.active(self.pods.pods())

    def active(self, pods: Sequence[Pod]) -> list[Pod]:
        """The active ones among some pods."""
        return [pod for pod in pods if self._is_active(pod)]

    def _is_active(self, pod: Pod) -> bool:
        if self.workers.is_known_terminated(pod.uid):
            return False
        if self.workers.is_termination_requested(pod.uid):
            return True
        if pod.is_terminal_in_api:
            return False
        status = self.get_status(pod.uid)
        return status is None or status.get("phase") not in TERMINAL_PHASES

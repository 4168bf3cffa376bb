"""Merges a CRI event into the known status of a pod.

Pure. An event carries the pod's status as it was just before the event was stamped, and only the
containers of one sandbox; a status read meanwhile may contain more. So an event's status is trusted
only where it moves forward; in all other cases the runtime is queried. It must never let a running
container vanish or an exited one come back.
"""

from __future__ import annotations

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus

_ORDER = (
    ContainerState.UNKNOWN,
    ContainerState.CREATED,
    ContainerState.RUNNING,
    ContainerState.EXITED,
)


def goes_forward(known: PodRuntimeStatus | None, event: PodRuntimeStatus) -> bool:
    """Whether the status of an event can follow what is known."""
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

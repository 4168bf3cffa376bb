"""What a CRI event adds to what is known of a pod.

Pure. An event carries the pod's status as it was just before the event was stamped, and only the
containers of one sandbox; a status read meanwhile may know more. So the status of an event is
believed only where it goes forward; everything else makes us ask the runtime. It must never let a
running container vanish or an exited one come back.
"""

from __future__ import annotations

from dataclasses import replace

from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus

_ORDER = {ContainerState.CREATED: 0, ContainerState.RUNNING: 1, ContainerState.EXITED: 2}


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
        if newer is None or _ORDER.get(newer.state, -1) < _ORDER.get(container.state, -1):
            return False
    return True


def without(known: PodRuntimeStatus, removed_id: str, at: int) -> PodRuntimeStatus:
    """What is known, less a container or sandbox that was removed at ``at`` (Unix ns).

    A sandbox takes its containers along.
    """
    return replace(
        known,
        sandboxes=tuple(s for s in known.sandboxes if s.id != removed_id),
        containers=tuple(c for c in known.containers if removed_id not in (c.id, c.sandbox_id)),
        observed_at=max(at, known.observed_at),
    )

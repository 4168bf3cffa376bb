"""How an eviction is reported: message, annotations, status. Pure.

Source: docs/reference/events.csv: Evicted, EvictionThresholdMet; docs/reference/reasons.csv:
Evicted, DisruptionTarget; docs/reference/behaviour-resources.md, rd.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.api import types as api
from kubeletpy.api.quantity import spelled
from kubeletpy.eviction.decide import Crossing
from kubeletpy.eviction.pod_use import MEMORY, STORAGE, Candidate, ContainerUse
from kubeletpy.eviction.signals import resource_of
from kubeletpy.pods.disruption import with_disruption

REASON = "Evicted"


def reclaiming(resource: str) -> str:
    """The node's event when something is about to be done."""
    return f"Attempting to reclaim {resource}"


def message(pod: Candidate, crossings: Sequence[Crossing]) -> str:
    """Why a pod has to go.

    Args:
        pod: that one.
        crossings: all that are crossed; the first is acted on.
    """
    first = crossings[0]
    resource = resource_of(first.threshold.signal)
    parts = [
        f"The node was low on resource: {resource}. ",
        f"Threshold quantity: {_number(first.quantity)}, "
        f"available: {_number(first.seen.available)}. ",
    ]
    if pod.use is None:
        return "".join(parts)
    if resource == MEMORY and pod.pod_level is not None:
        parts.append(
            f"Pod {pod.key.rpartition('/')[2]} was using {_number(pod.use.memory)}, request is "
            f"{_number(pod.pod_level)}, has larger consumption of {resource}. "
        )
    for container, used, request in _offending(pod, resource):
        parts.append(
            f"Container {container.name} was using {_number(used)}, request is "
            f"{_number(request)}, has larger consumption of {resource}. "
        )
    return "".join(parts)


def event_annotations(pod: Candidate, crossing: Crossing) -> dict[str, str]:
    """Of the event of an eviction."""
    if pod.use is None:
        return {}
    resource = resource_of(crossing.threshold.signal)
    found = _offending(pod, resource)
    made = {
        "offending_containers": ",".join(container.name for container, _, _ in found),
        "offending_containers_usage": ",".join(_number(used) for _, used, _ in found),
        "starved_resource": resource,
    }
    if resource == MEMORY and pod.pod_level is not None:
        made["offending_pod"] = pod.key.rpartition("/")[2]
        made["offending_pod_usage"] = _number(pod.use.memory)
    return made


def evicted_status(
    status: api.PodStatus, text: str, now: float, generation: int = 0
) -> api.PodStatus:
    """The status of a pod that goes for the node's sake. ``now`` in Unix seconds."""
    conditions = with_disruption(status, text, now, generation)
    return {
        **status,
        "phase": "Failed",
        "reason": REASON,
        "message": text,
        "conditions": conditions,
    }


def _offending(pod: Candidate, resource: str) -> list[tuple[ContainerUse, int, int]]:
    """Containers that use more than they asked for, with both numbers."""
    found = []
    for container in pod.use.containers if pod.use is not None else ():
        used = {MEMORY: container.memory, STORAGE: container.storage}.get(resource)
        request = container.requests.get(resource, 0)
        if used is not None and used > request:
            found.append((container, used, request))
    return found


def _number(amount: int) -> str:
    return spelled(amount, binary=True)

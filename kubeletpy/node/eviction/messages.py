"""How an eviction is reported: message, annotations, status. Pure.

Source: docs/reference/events.csv: Evicted, EvictionThresholdMet; docs/reference/reasons.csv:
Evicted, DisruptionTarget; docs/reference/behaviour-resources.md, rd.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, spelled
from kubeletpy.node.eviction.decide import Crossing
from kubeletpy.node.eviction.pod_use import MEMORY, STORAGE, Candidate, ContainerUse, Use
from kubeletpy.node.eviction.signals import resource_of
from kubeletpy.pods.disruption import with_disruption

REASON = "Evicted"


def reclaiming(resource: str) -> str:
    """The node's event when action is about to be taken."""
    return f"Attempting to reclaim {resource}"


def message(pod: Candidate, crossings: Sequence[Crossing]) -> str:
    """Why a pod is evicted.

    Args:
        pod: that one.
        crossings: all crossed thresholds; the first is acted on.
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
            f"{pod.pod_level}, has larger consumption of {resource}. "
        )
    for container, used, request in _offending(pod.use, resource):
        parts.append(
            f"Container {container.name} was using {_number(used)}, request is "
            f"{request or 0}, has larger consumption of {resource}. "
        )
    return "".join(parts)


def event_annotations(pod: Candidate, crossing: Crossing) -> dict[str, str]:
    """The annotations of an eviction event."""
    if pod.use is None:
        return {}
    resource = resource_of(crossing.threshold.signal)
    found = _offending(pod.use, resource)
    made = {
        "offending_containers": ",".join(container.name for container, _, _ in found),
        "offending_containers_usage": ",".join(_number(used) for _, used, _ in found),
        "starved_resource": resource,
    }
    if resource == MEMORY and pod.pod_level is not None:
        made["offending_pod"] = pod.key.rpartition("/")[2]
        made["offending_pod_usage"] = _number(pod.use.memory)
    return made


def evicted_status(status: api.PodStatus, text: str, now: float, generation: int) -> api.PodStatus:
    """The status of a pod evicted for the node's sake. ``now`` in Unix seconds."""
    conditions = with_disruption(status, text, now, generation)
    return {
        **status,
        "phase": "Failed",
        "reason": REASON,
        "message": text,
        "conditions": conditions,
    }


def _offending(use: Use, resource: str) -> list[tuple[ContainerUse, int, Quantity | None]]:
    """Containers that use more than they requested, with both amounts."""
    found = []
    for container in use.containers:
        used = {MEMORY: container.memory, STORAGE: container.storage}.get(resource)
        request = container.requests.get(resource)
        if used is not None and used > (request.amount if request else 0):
            found.append((container, used, request))
    return found


def _number(amount: int) -> str:
    return spelled(amount, binary=True)

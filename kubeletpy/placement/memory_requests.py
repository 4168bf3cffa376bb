"""The memory to book for containers and pods. Pure.

Source: docs/reference/behaviour-resources.md, rs.
"""

from __future__ import annotations

from kubeletpy.api import types as api
from kubeletpy.api.quantity import whole
from kubeletpy.placement.pod_pool import may_have_own
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.resources import Amounts, container_amounts

MEMORY = "memory"
HUGE = "hugepages-"


def requested_memory(
    pod: Pod, container: api.Container, *, pod_level: bool = False
) -> dict[str, int]:
    """The memory to book for a container. Raises ValueError for an invalid quantity.

    ``pod_level``: whether anything is booked for containers of pods with pod-level resources.
    """
    if not may_have_own(pod, container, pod_level=pod_level):
        return {}
    return memory_types(container_amounts(container, "requests"))


def memory_types(requests: Amounts) -> dict[str, int]:
    """The bytes of each type of memory that is requested, in the order of names."""
    found = {
        name: whole(amount)
        for name, amount in requests.items()
        if name == MEMORY or name.startswith(HUGE)
    }
    return {name: size for name, size in sorted(found.items()) if size > 0}


def peak_memory_requests(pod: Pod) -> dict[str, int]:
    """A pod's peak need: init containers take turns, sidecars keep running."""
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.init_containers:
        for name, size in requested_memory(pod, container).items():
            together = sidecars.get(name, 0) + size
            if is_sidecar(container):
                sidecars[name] = together
            peak[name] = max(peak.get(name, 0), together)
    regular = dict(sidecars)
    for container in pod.containers:
        for name, size in requested_memory(pod, container).items():
            regular[name] = regular.get(name, 0) + size
    names = sorted(peak.keys() | regular.keys())
    return {name: max(peak.get(name, 0), regular.get(name, 0)) for name in names}

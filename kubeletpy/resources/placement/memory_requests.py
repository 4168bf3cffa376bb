"""The memory to book for containers and pods. Pure.

Source: docs/reference/behaviour-resources.md, rs.
"""

from __future__ import annotations

from functools import partial

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import whole
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import Amounts, container_amounts
from kubeletpy.resources.placement.pod_pool import may_have_own, peak_requests

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
    """The memory that a pod needs at once."""
    return dict(sorted(peak_requests(pod, partial(requested_memory, pod)).items()))

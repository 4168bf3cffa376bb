"""What a pod requests in total: sums of its containers' requests and limits.

Source: docs/reference/behaviour.md, k3; KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-688
(overhead). Amounts are Decimals in the resource's own unit (cores, bytes, pieces).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from kubeletpy.api import types as api
from kubeletpy.api.quantity import parse
from kubeletpy.pods.pod import Pod, is_sidecar

Amounts = dict[str, Decimal]
HUGEPAGES_PREFIX = "hugepages-"
COMPUTE = ("cpu", "memory")
"""The resources that decide the QoS class and that can be resized in place."""


def amounts(quantities: Mapping[str, str] | None) -> Amounts:
    """Read a list of quantities. Raises ValueError."""
    return {name: parse(text) for name, text in (quantities or {}).items()}


def container_amounts(container: api.Container, which: Literal["requests", "limits"]) -> Amounts:
    """One container's requests or limits. Raises ValueError."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    return amounts(resources.get(which))


def pod_requests(pod: Pod, *, overhead: bool = True) -> Amounts:
    """The pod's requests as counted by the scheduler and the pod cgroup.

    The larger of what runs together at the end (regular containers and all sidecars) and what runs
    while each init container does (it and the sidecars before it); pod-level values replace the
    sums. Raises ValueError.
    """
    total = container_sum(pod, "requests")
    total.update(_pod_level(pod, "requests"))
    if overhead:
        for name, amount in amounts(pod.spec.get("overhead")).items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def pod_limits(pod: Pod, *, overhead: bool = True) -> Amounts:
    """Like :func:`pod_requests`, for limits; overhead raises only limits that are set."""
    total = container_sum(pod, "limits")
    total.update(_pod_level(pod, "limits"))
    if overhead:
        for name, amount in amounts(pod.spec.get("overhead")).items():
            if total.get(name):
                total[name] += amount
    return total


def pod_level_limit(pod: Pod, name: str) -> str | None:
    """A pod-level limit, if the spec sets one."""
    return _pod_level_quantities(pod, "limits").get(name)


def limited(pod: Pod, name: str) -> bool:
    """Whether a pod has a limit for a resource: pod-level, or on each of its containers.

    Raises ValueError.
    """
    if pod_level_limit(pod, name) is not None:
        return True
    containers = (*pod.containers, *pod.init_containers)
    return all(container_amounts(c, "limits").get(name) for c in containers)


def pod_level_requests_set(pod: Pod) -> bool:
    """Whether the spec has pod-level requests."""
    return any(_pod_level_supports(name) for name in _pod_level_quantities(pod, "requests"))


def pod_level_set(pod: Pod) -> bool:
    """Whether the spec has pod-level requests or limits."""
    return pod_level_requests_set(pod) or any(
        _pod_level_supports(name) for name in _pod_level_quantities(pod, "limits")
    )


def container_sum(pod: Pod, which: Literal["requests", "limits"]) -> Amounts:
    """What the containers request together at the pod's peak. Raises ValueError."""
    total: Amounts = {}
    for container in pod.containers:
        _add(total, container_amounts(container, which))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in pod.init_containers:
        own = container_amounts(container, which)
        if is_sidecar(container):
            _add(total, own)
            _add(sidecars, own)
            _raise(peak, sidecars)
        else:
            _add(own, sidecars)
            _raise(peak, own)
    _raise(total, peak)
    return total


def _pod_level(pod: Pod, which: Literal["requests", "limits"]) -> Amounts:
    quantities = _pod_level_quantities(pod, which)
    return amounts({n: text for n, text in quantities.items() if _pod_level_supports(n)})


def _pod_level_quantities(pod: Pod, which: Literal["requests", "limits"]) -> Mapping[str, str]:
    resources: Mapping[str, Any] = pod.spec.get("resources") or {}
    return resources.get(which) or {}


def _pod_level_supports(name: str) -> bool:
    return name in COMPUTE or name.startswith(HUGEPAGES_PREFIX)


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def _raise(total: Amounts, other: Amounts) -> None:
    for name, amount in other.items():
        total[name] = max(total.get(name, amount), amount)

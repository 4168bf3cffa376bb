"""A pod's total requests and limits: sums over its containers.

Source: docs/reference/behaviour.md, k3; KEP-753 (sidecars), KEP-2837 (pod-level resources), KEP-688
(overhead). Amounts are Decimals in the resource's own unit (cores, bytes, pieces).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal, TypeVar

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, parse
from kubeletpy.base.api.quantity import parse_quantity as read_quantity
from kubeletpy.pods.node_allocatable import added_to_pod, claims
from kubeletpy.pods.pod import Pod, is_sidecar

Amounts = dict[str, Decimal]
Kind = Literal["requests", "limits"]
_N = TypeVar("_N", Decimal, Quantity)
HUGEPAGES_PREFIX = "hugepages-"
COMPUTE = ("cpu", "memory")
"""The resources that decide the QoS class and that can be resized in place."""


def amounts(quantities: Mapping[str, str] | None) -> Amounts:
    """Read a list of quantities. Raises ValueError."""
    return {name: parse(text) for name, text in (quantities or {}).items()}


def container_amounts(container: api.Container, which: Kind) -> Amounts:
    """One container's requests or limits. Raises ValueError."""
    resources: Mapping[str, Any] = container.get("resources") or {}
    return amounts(resources.get(which))


def cpu_request(pod: Pod, container: api.Container) -> Decimal | None:
    """The cores by which a container shares the CPUs: its request, else its or its pod's limit.

    None: it has neither. Raises ValueError.
    """
    limit = container_amounts(container, "limits").get("cpu")
    of_pod = amounts((pod.spec.get("resources") or {}).get("limits"))
    return container_amounts(container, "requests").get("cpu", limit or of_pod.get("cpu"))


def pod_requests(pod: Pod, *, overhead: bool = True, with_claims: bool = False) -> Amounts:
    """The pod's requests as counted by the scheduler and the pod cgroup.

    The largest of these sums: the regular containers with all sidecars, and each init container
    with the sidecars before it. Pod-level values replace the sums. Raises ValueError.

    Args:
        overhead: whether ``spec.overhead`` counts.
        with_claims: whether what the pod's claims add to its containers counts.
    """
    return _pod_total(pod, "requests", parse, overhead=overhead, with_claims=with_claims)


def pod_limits(pod: Pod, *, overhead: bool = True, with_claims: bool = False) -> Amounts:
    """Like :func:`pod_requests`, for limits; overhead and claims raise only limits that are set.

    Exception: huge pages of claims, as a pod without a limit may not use any.
    """
    return _pod_total(pod, "limits", parse, overhead=overhead, with_claims=with_claims)


def pod_quantities(pod: Pod, which: Kind, *, with_claims: bool = False) -> dict[str, Quantity]:
    """A pod's total requests or limits, in the formats of the spec. Raises ValueError."""
    return _pod_total(pod, which, read_quantity, overhead=True, with_claims=with_claims)


def _pod_total(
    pod: Pod, which: Kind, read: Callable[[str], _N], *, overhead: bool, with_claims: bool
) -> dict[str, _N]:
    total = _container_sum(pod, which, read)
    if with_claims and claims(pod):
        _add(
            total,
            {
                name: amount
                for name, amount in added_to_pod(pod, read).items()
                if which == "requests" or name in total or name.startswith(HUGEPAGES_PREFIX)
            },
        )
    pod_level = _pod_level_quantities(pod, which)
    total.update({n: read(text) for n, text in pod_level.items() if _pod_level_supports(n)})
    if overhead:
        _add(
            total,
            {
                name: read(text)
                for name, text in (pod.spec.get("overhead") or {}).items()
                if which == "requests" or total.get(name)
            },
        )
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


def resource_levels(pod: Pod) -> str:
    """Where a pod states requests or limits, as kubelet_pod_level_resources_admission_total does.

    ``pod_and_container_level``, ``pod_level``, ``container_level``, or empty for nowhere.
    Source: docs/reference/metrics.csv: kubelet_pod_level_resources_admission_total.
    """
    on_pod = pod_level_set(pod)
    on_containers = any(
        resources.get("requests") or resources.get("limits")
        for container in (*pod.containers, *pod.init_containers)
        if (resources := container.get("resources"))
    )
    if on_pod:
        return "pod_and_container_level" if on_containers else "pod_level"
    return "container_level" if on_containers else ""


def requested_below_pod(pod: Pod) -> Amounts:
    """Requests of containers at the pod's peak, with those of claims. Raises ValueError."""
    total = _container_sum(pod, "requests", parse)
    _add(total, added_to_pod(pod, parse))
    return total


def _container_sum(pod: Pod, which: Kind, read: Callable[[str], _N]) -> dict[str, _N]:
    def own(container: api.Container) -> dict[str, _N]:
        resources: Mapping[str, Any] = container.get("resources") or {}
        return {name: read(text) for name, text in (resources.get(which) or {}).items()}

    total: dict[str, _N] = {}
    for container in pod.containers:
        _add(total, own(container))
    sidecars: dict[str, _N] = {}
    peak: dict[str, _N] = {}
    for container in pod.init_containers:
        amount = own(container)
        if is_sidecar(container):
            _add(total, amount)
            _add(sidecars, amount)
            _raise(peak, sidecars)
        else:
            _add(amount, sidecars)
            _raise(peak, amount)
    _raise(total, peak)
    return total


def _pod_level_quantities(pod: Pod, which: Kind) -> Mapping[str, str]:
    resources: Mapping[str, Any] = pod.spec.get("resources") or {}
    return resources.get(which) or {}


def _pod_level_supports(name: str) -> bool:
    return name in COMPUTE or name.startswith(HUGEPAGES_PREFIX)


def _add(total: dict[str, _N], more: Mapping[str, _N]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: dict[str, _N], other: Mapping[str, _N]) -> None:
    for name, amount in other.items():
        if name not in total or total[name] < amount:
            total[name] = amount

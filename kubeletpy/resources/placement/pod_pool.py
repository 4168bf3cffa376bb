"""How pods with pod-level resources (spec.resources) are placed. Pure.

With the gate PodLevelResourceManagers a pod is placed as one: the managers book a pool of what
spec.resources requests, and divide it among the containers. The rules are the same for CPUs and
memory. Source: docs/reference/behaviour-resources.md, rq, rs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Generic, TypeVar

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.resources import (
    COMPUTE,
    Amounts,
    QoSClass,
    amounts,
    container_amounts,
    pod_level_set,
    qos_class,
)
from kubeletpy.resources.placement.hints import Policy

EMPTY_POOL = AdmissionReason.EMPTY_POD_SHARED_POOL_ERROR
T = TypeVar("T")
Part = TypeVar("Part", frozenset[int], Counter[str])


class PodLevelPlacement(StrEnum):
    """How resources are booked for a Guaranteed pod with pod-level resources."""

    NOTHING = "nothing"
    """The gate is off: its containers use what the node shares."""
    CONTAINERS = "containers"
    """Containers whose limits are their requests get theirs from the node."""
    POOL = "pool"
    """The pod gets a pool, which its containers divide."""

    @classmethod
    def of_settings(cls, on: bool, policy: Policy, scope: str) -> PodLevelPlacement:
        """``on``: the gate PodLevelResourceManagers; the others are the topology manager's."""
        if not on:
            return cls.NOTHING
        return cls.POOL if scope == "pod" and policy is not Policy.NONE else cls.CONTAINERS

    def pools(self, pod: Pod) -> bool:
        """Whether this pod gets a pool."""
        return self is PodLevelPlacement.POOL and pod_level_set(pod)


class Division(Struct, Generic[Part], frozen=True):
    """A pool as its containers have it.

    Attributes:
        parts: of each container: its own part, or the part that it shares.
        own: the containers that have parts of their own.
    """

    parts: Mapping[str, Part]
    own: frozenset[str]


def containers_in_order(pod: Pod) -> Iterator[api.Container]:
    """A pod's containers in the order of allocation: init containers first."""
    yield from pod.init_containers
    yield from pod.containers


def may_have_own(pod: Pod, container: api.Container, *, pod_level: bool) -> bool:
    """Whether a container may have CPUs or memory of its own.

    ``pod_level``: whether containers of pods with pod-level resources may. Raises ValueError for
    an invalid quantity.
    """
    if qos_class(pod) is not QoSClass.GUARANTEED:
        return False
    return not pod_level_set(pod) or (pod_level and _limits_are_requests(container))


def shares_part(pod: Pod, name: str, own: Callable[[api.Container], object]) -> bool:
    """Whether others of its pod share what a container has.

    ``own``: what a container has of its own if its pod gets a pool.
    """
    return pod_level_set(pod) and not any(
        own(each) for each in containers_in_order(pod) if each["name"] == name
    )


def pool_requests(pod: Pod) -> Amounts:
    """The contents of a pod's pool: its pod-level requests; nothing unless it is Guaranteed.

    Raises ValueError for an invalid quantity.
    """
    if qos_class(pod) is not QoSClass.GUARANTEED:
        return {}
    return amounts((pod.spec.get("resources") or {}).get("requests"))


def left_by_init_containers(
    pod: Pod, container: str, held: Callable[[str], frozenset[T]]
) -> frozenset[T]:
    """The resources of init containers that have ended when a container starts.

    ``held``: the resources of a container, by its name.
    """
    ending = {each["name"] for each in pod.init_containers if not is_sidecar(each)}
    found: frozenset[T] = frozenset()
    for name in (each["name"] for each in containers_in_order(pod)):
        if name == container:
            break
        found = found | held(name) if name in ending else found - held(name)
    return found


def peak_requests(
    pod: Pod, requested: Callable[[api.Container], Mapping[str, int]]
) -> Counter[str]:
    """The most that a pod needs at once: init containers take turns, sidecars keep running."""
    lasting, peak = Counter[str](), Counter[str]()
    for container in pod.init_containers:
        together = lasting + Counter(requested(container))
        peak |= together
        if is_sidecar(container):
            lasting = together
    for container in pod.containers:
        lasting.update(requested(container))
    return peak | lasting


def divide(pod: Pod, pool: Part, take: Callable[[api.Container, Part], Part]) -> Division[Part]:
    """Divide a pool among a pod's containers.

    Sidecars and regular containers keep their own parts, and share what nobody owns. A regular
    init container ends before regular containers start: it may have, or share, all that the
    sidecars before it do not own.

    Args:
        take: the own part of a container from what is left; empty: it shares.
    """
    parts: dict[str, Part] = {}
    own = set()
    left = pool
    for number, container in enumerate(containers_in_order(pod)):
        ends = number < len(pod.init_containers) and not is_sidecar(container)
        part = take(container, left)
        if part:
            own.add(container["name"])
            if not ends:
                left = left - part
        if part or ends:
            parts[container["name"]] = part or left
    for container in containers_in_order(pod):
        parts.setdefault(container["name"], left)
    return Division(parts, frozenset(own))


def check_pool(
    pod: Pod, pool: Counter[str], own: Callable[[api.Container], Mapping[str, int]]
) -> str:
    """Why a pool is too small: nothing is left of a resource that containers have to share.

    Args:
        own: what a container would own of the pool.

    Returns:
        the message of the refusal; empty: the pool suffices.
    """
    division = divide(pod, pool, lambda container, left: +Counter(own(container)))
    for name, part in division.parts.items():
        for resource in sorted(pool.keys() - part.keys()):
            if name not in division.own:
                return (
                    f"pod rejected, its exclusive containers request all {resource} of the pod: "
                    f"none is left for container {name}"
                )
    return ""


def _limits_are_requests(container: api.Container) -> bool:
    requests = container_amounts(container, "requests")
    limits = container_amounts(container, "limits")
    return all(requests.get(name) and requests[name] == limits.get(name) for name in COMPUTE)

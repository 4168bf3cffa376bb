"""Which of a pod's resources are allocated to it, and the pod as it is with an allocation.

Pure. Amounts are compared by value ("1" is "1000m"). What is not cpu or memory cannot be resized
and travels along unchanged. Must never change an object in place. Source:
docs/reference/behaviour.md, c10; KEP-1287, KEP-5419 (pod level).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.api.quantity import parse
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.replaced import replaced_containers
from kubeletpy.pods.resources import COMPUTE

KINDS = ("requests", "limits")

Requirements = api.ResourceRequirements


@dataclass(frozen=True, slots=True)
class PodResources:
    """What a pod's containers (init and regular ones) and the pod as a whole are given."""

    containers: Mapping[str, Requirements] = field(default_factory=dict)
    pod: Requirements | None = None


def of_pod(pod: Pod) -> PodResources:
    """What a pod's spec asks for."""
    return PodResources(
        {c["name"]: c.get("resources") or {} for c in (*pod.init_containers, *pod.containers)},
        pod.spec.get("resources"),
    )


def asks_for_nothing(pod: Pod) -> bool:
    """Whether no cpu or memory is named anywhere in a pod.

    Such a pod is BestEffort, and as a resize may not change the class, it will never be resized.
    """
    found = of_pod(pod)
    return not any(
        name in amounts(requirements, kind)
        for requirements in (*found.containers.values(), found.pod or Requirements())
        for kind in KINDS
        for name in COMPUTE
    )


def same(one: Requirements | None, other: Requirements | None) -> bool:
    """Whether two requirements mean the same amounts. None is the same as none named."""
    if one == other:
        return True
    first, second = one or Requirements(), other or Requirements()
    return all(_same_amounts(amounts(first, kind), amounts(second, kind)) for kind in KINDS)


def amounts(requirements: Requirements, kind: str) -> Mapping[str, str]:
    """Requests or limits; possibly none."""
    everything: Mapping[str, Any] = requirements
    return everything.get(kind) or {}


def _same_amounts(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    if one.keys() != other.keys():
        return False
    try:
        return all(parse(one[name]) == parse(other[name]) for name in one)
    except ValueError:
        return False


def with_resources(pod: Pod, given: PodResources) -> Pod:
    """The pod with what it is given in place of what it asks for; itself when that is the same.

    A container that nothing is noted of keeps what it asks for.
    """
    changed = replaced_containers(
        pod, lambda container, init: _with(container, given.containers.get(container["name"]))
    )
    drop_pod_level = False
    if not same(pod.spec.get("resources"), given.pod):
        drop_pod_level = given.pod is None
        changed["resources"] = given.pod
    if not changed:
        return pod
    spec: dict[str, Any] = {**pod.spec, **changed}
    if drop_pod_level:
        del spec["resources"]
    return Pod({**pod.object, "spec": spec})  # type: ignore[typeddict-item]


def _with(container: api.Container, given: Requirements | None) -> api.Container:
    if given is None or same(container.get("resources"), given):
        return container
    return {**container, "resources": given}

"""Which of a pod's resources are allocated to it, and the pod with its allocation applied.

Pure. Amounts are compared by value ("1" is "1000m"). Resources other than cpu and memory cannot be
resized and are passed through unchanged. Must never change an object in place. Source:
docs/reference/behaviour.md, c10; KEP-1287, KEP-5419 (pod level).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import parse
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import Pod, replaced_containers
from kubeletpy.pods.resources import COMPUTE, size_limits, with_size_limits

KINDS = ("requests", "limits")

Requirements = api.ResourceRequirements


class PodResources(Struct, frozen=True):
    """The allocated resources of a pod's containers (init and regular), and at pod level.

    ``volumes``: the size limits of its volumes in memory; empty while these can't be resized.
    """

    containers: Mapping[str, Requirements] = field(default_factory=dict)
    pod: Requirements | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)


def of_pod(pod: Pod, *, memory_volumes: bool = False) -> PodResources:
    """The resources in a pod's spec; with the sizes of its volumes in memory if requested."""
    return PodResources(
        {c["name"]: c.get("resources") or {} for c in (*pod.init_containers, *pod.containers)},
        pod.spec.get("resources"),
        size_limits(pod) if memory_volumes else {},
    )


def never_resized(found: PodResources) -> bool:
    """Whether a pod's spec has neither cpu nor memory anywhere, nor a volume of variable size.

    Such a pod is BestEffort; as a resize may not change the QoS class, it will never be resized.
    """
    return not found.volumes and not any(
        name in amounts(requirements, kind)
        for requirements in (*found.containers.values(), found.pod or Requirements())
        for kind in KINDS
        for name in COMPUTE
    )


def same(one: Requirements | None, other: Requirements | None) -> bool:
    """Whether two requirements mean the same amounts. None equals no amounts."""
    if one == other:
        return True
    first, second = one or Requirements(), other or Requirements()
    return all(_same_amounts(amounts(first, kind), amounts(second, kind)) for kind in KINDS)


def amounts(requirements: Requirements, kind: str) -> Mapping[str, str]:
    """Requests or limits; may be empty."""
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
    """The pod with its allocation in place of its requests; itself if they are equal.

    A container without a record keeps its requests.
    """
    changed = replaced_containers(
        pod, lambda container, init: _with(container, given.containers.get(container["name"]))
    )
    drop_pod_level = False
    if not same(pod.spec.get("resources"), given.pod):
        drop_pod_level = given.pod is None
        changed["resources"] = given.pod
    if (volumes := with_size_limits(pod, given.volumes)) is not None:
        changed["volumes"] = volumes
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

"""The part of a container's resources that can be resized: requests and limits of cpu and memory.

Pure arithmetic and wording. Must never decide what is to be done about a difference.

Source: docs/reference/behaviour.md, c10; KEP-1287, KEP-5419 (pod-level resources).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, parse, value
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod


class ResizableResource(StrEnum):
    """A resource that can be resized; members are in the order of resizing."""

    MEMORY = "memory"
    CPU = "cpu"


RESOURCES = tuple(ResizableResource)
_WHICH = ("requests", "limits")


class Resizable(Struct, frozen=True):
    """Resizable requests and limits: millicores and bytes; 0: none."""

    cpu_request: int = 0
    cpu_limit: int = 0
    memory_request: int = 0
    memory_limit: int = 0

    def request_and_limit(self, resource: ResizableResource) -> tuple[int, int]:
        """(request, limit) of one resource."""
        if resource is ResizableResource.CPU:
            return self.cpu_request, self.cpu_limit
        return self.memory_request, self.memory_limit


def resizable(resources: api.ResourceRequirements | None) -> Resizable:
    """The resizable amounts. Raises ValueError: not a quantity."""
    requests, limits = _quantities(resources, "requests"), _quantities(resources, "limits")
    return Resizable(
        cpu_request=milli_value(requests.get("cpu", 0)),
        cpu_limit=milli_value(limits.get("cpu", 0)),
        memory_request=value(requests.get("memory", 0)),
        memory_limit=value(limits.get("memory", 0)),
    )


def effective_resources(pod: Pod, container: api.Container) -> api.ResourceRequirements:
    """A container's resources including the limits it has through its pod. Raises ValueError."""
    own = container.get("resources") or {}
    of_pod = _quantities(pod.spec.get("resources"), "limits")
    if not of_pod:
        return own
    limits = dict(_quantities(own, "limits"))
    for name in RESOURCES:
        if name in of_pod and not parse(limits.get(name, 0)):
            limits[name] = of_pod[name]
    return {**own, "limits": limits}


def merged(
    known: api.ResourceRequirements | None,
    desired: api.ResourceRequirements,
    resource: ResizableResource,
) -> api.ResourceRequirements:
    """A container's resources once one of them is as desired; the other one stays as recorded."""
    result: dict[str, Any] = {**desired}
    for which in _WHICH:
        new, old = _quantities(desired, which), _quantities(known, which)
        chosen = {name: text for name, text in new.items() if name not in RESOURCES}
        for name in RESOURCES:
            source = new if name is resource else old
            if name in source:
                chosen[name.value] = source[name]
        result[which] = chosen
    return result  # type: ignore[return-value]


def changes(known: api.ResourceRequirements, desired: api.ResourceRequirements) -> Iterator[str]:
    """Each difference as ``cpu limit 500m -> 1``. Raises ValueError."""
    have, want = resizable(known), resizable(desired)
    for resource in RESOURCES:
        for which, old, new in zip(
            _WHICH, have.request_and_limit(resource), want.request_and_limit(resource), strict=True
        ):
            if old != new:
                before = _quantities(known, which).get(resource, "none")
                after = _quantities(desired, which).get(resource, "none")
                yield f"{resource} {which.removesuffix('s')} {before} -> {after}"


def _quantities(resources: api.ResourceRequirements | None, which: str) -> Mapping[str, str]:
    everything: Mapping[str, Any] = resources or {}
    return everything.get(which) or {}

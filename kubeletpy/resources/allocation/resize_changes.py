"""The resources that a pod update resizes: for the metric, and to decide whether it is a resize.

Pure. Source: docs/reference/metrics.csv: kubelet_container_requested_resizes_total.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal

from kubeletpy.base.api.quantity import parse
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, changed_limits, size_limits
from kubeletpy.resources.allocation.resources import KINDS, amounts, of_pod, same


class ResourceChange(Struct, frozen=True):
    """One amount in one container that an update changes."""

    resource: str
    """cpu or memory."""
    requirement: str
    """requests or limits."""
    operation: str
    """add, remove, increase or decrease."""


def resource_changes(old: Pod, new: Pod) -> Iterator[ResourceChange]:
    """The changes in resources between two versions of a pod. ValueError: an invalid quantity."""
    if old.spec is new.spec:
        return
    before, after = of_pod(old).containers, of_pod(new).containers
    for name, wanted in after.items():
        had = before.get(name)
        if had is None:
            continue
        for resource in COMPUTE:
            for kind in KINDS:
                was = _amount(amounts(had, kind), resource)
                will = _amount(amounts(wanted, kind), resource)
                if was != will:
                    yield ResourceChange(resource, kind, _operation(was, will))


def pod_level_changes(old: Pod, new: Pod) -> bool:
    """Whether the pod-level resources change."""
    return not same(old.spec.get("resources"), new.spec.get("resources"))


def volume_sizes_change(old: Pod, new: Pod) -> bool:
    """Whether the size of a volume in memory changes."""
    return old.spec is not new.spec and bool(changed_limits(size_limits(old), size_limits(new)))


def _amount(named: Mapping[str, str], name: str) -> Decimal:
    return parse(named.get(name) or "0")


def _operation(was: Decimal, will: Decimal) -> str:
    if not will:
        return "remove"
    if not was:
        return "add"
    return "increase" if will > was else "decrease"

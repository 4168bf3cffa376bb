"""Whether a node has enough left for what a pod requests.

Pure. Amounts are whole numbers: cpu in millicores, all else in units, rounded up. Source:
docs/reference/behaviour.md, l.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, value, whole
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import HUGEPAGES_PREFIX, Amounts, pod_requests, requests_in_force
from kubeletpy.resources.admission.verdict import Shortage

Needs = Mapping[str, int]
NeedsOf = Callable[[Pod], Needs]
PODS = "pods"
NOTHING: Mapping[str, int] = {}
_FIRST = ("cpu", "memory", "ephemeral-storage")


def pod_needs(pod: Pod) -> Needs:
    """The resources of a node that a pod and its claims take while it runs.

    Raises ValueError for an invalid quantity.
    """
    return needs_of_requests(pod_requests(pod, with_claims=True))


def needs_in_force(pod: Pod) -> Needs:
    """The resources that a pod already on the node takes. Raises ValueError: see above."""
    return needs_of_requests(requests_in_force(pod))


def needs_of_requests(requests: Amounts) -> Needs:
    """Requests in whole units: cpu in thousandths."""
    return {
        name: whole(amount * 1000 if name == "cpu" else amount) for name, amount in requests.items()
    }


def is_extended(name: str) -> bool:
    """Whether a resource is the cluster owner's own (``vendor.example/gpu``)."""
    domain, slash, _ = name.partition("/")
    return bool(slash) and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))


def no_fewer(allocatable: Mapping[str, str], held: Mapping[str, int]) -> Mapping[str, str]:
    """Allocatable, raised to what is in use: pods may still hold devices that are now missing."""
    more = {name: n for name, n in held.items() if value(allocatable.get(name, "0")) < n}
    return {**allocatable, **{name: str(n) for name, n in more.items()}} if more else allocatable


def shortages(
    pod: Pod,
    others: Sequence[Pod],
    allocatable: Mapping[str, str],
    needs_of: NeedsOf = pod_needs,
) -> list[Shortage]:
    """The node's shortages for running the pod beside the others; ``pods`` first.

    Extended resources that the node does not have are not checked here, and neither is what the
    pod's own ResourceClaim provides. Raises ValueError for an invalid quantity.
    """
    found = []
    allowed = value(allocatable.get(PODS, "0"))
    if len(others) + 1 > allowed:
        found.append(Shortage(PODS, 1, len(others), allowed))
    requested = {**needs_of(pod), **_beside_claim(pod)}
    needs = {name: amount for name, amount in requested.items() if amount > 0}
    if not needs:
        return found
    of_others = [needs_of(other) for other in others]
    for name in (*_FIRST, *sorted(name for name in needs if name not in _FIRST)):
        if name not in needs or not _counts(name, allocatable):
            continue
        text = allocatable.get(name, "0")
        capacity = milli_value(text) if name == "cpu" else value(text)
        used = sum(each.get(name, 0) for each in of_others)
        if needs[name] > capacity - used:
            found.append(Shortage(name, needs[name], used, capacity))
    return found


def _beside_claim(pod: Pod) -> Needs:
    """The share that the node's devices must provide of resources partly provided by a claim.

    The scheduler makes the claim, and records which containers get which resource from it.
    """
    status = pod.status.get("extendedResourceClaimStatus") or {}
    mappings = status.get("requestMappings") or ()
    provided = {(each.get("containerName"), each.get("resourceName") or "") for each in mappings}
    if not provided:
        return NOTHING
    spec: dict[str, Any] = {**pod.spec}
    for kind in ("containers", "initContainers"):
        spec[kind] = [_without(each, provided) for each in spec.get(kind) or ()]
    left = pod_needs(Pod(cast("api.Pod", {**pod.object, "spec": spec})))
    return {name: left.get(name, 0) for _, name in provided}


def _without(container: Mapping[str, Any], provided: Set[tuple[str | None, str]]) -> JSON:
    resources = container.get("resources") or {}
    requests = {
        name: text
        for name, text in (resources.get("requests") or {}).items()
        if (container["name"], name) not in provided
    }
    return {**container, "resources": {**resources, "requests": requests}}


def _counts(name: str, allocatable: Mapping[str, str]) -> bool:
    if is_extended(name):
        return name in allocatable
    return name in _FIRST or name.startswith(HUGEPAGES_PREFIX) or "/" in name

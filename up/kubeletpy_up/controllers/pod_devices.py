"""Effect of a pod's device claims on where it may run. Pure: the objects come as arguments.

Source: the default scheduler's DynamicResources, and the claims it makes for extended resources
that device classes stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers import device_pools
from kubeletpy_up.controllers.claim_matching import owner_of
from kubeletpy_up.controllers.device_allocation import CannotAllocate, allocate
from kubeletpy_up.controllers.placement import matches_node
from kubeletpy_up.kinds.devices import CLAIMS
from kubeletpy_up.kinds.meta import with_metadata

Find = Callable[[str, str, str], JSON | None]
FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
IMPLIED = "deviceclass.resource.kubernetes.io/"
"""Prefix of a class's name: the extended resource that every class has."""
ELSEWHERE = "resourceclaim not available on the node"


@dataclass(frozen=True, slots=True)
class PodDevices:
    """The claims of one pod.

    Attributes:
        problem: why it can run nowhere (at present).
        own: the claim to create for its extended resources; not stored yet.
        mappings: which of its requests stands for which resource of which container.
    """

    problem: str = ""
    claims: tuple[JSON, ...] = ()
    own: JSON | None = None
    mappings: tuple[JSON, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.claims or self.own)

    @property
    def resources(self) -> frozenset[str]:
        """The extended resources that are claimed."""
        return frozenset(each["resourceName"] for each in self.mappings)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Whether a node can have a pod's devices: why not, or the allocations to write by claim."""

    reasons: tuple[str, ...] = ()
    allocations: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """The allocated claims, the existing devices, and the classes to request them by.

    Attributes:
        share_id: a new name for a share of a device.
    """

    claims: Sequence[JSON]
    slices: Sequence[JSON]
    classes: Mapping[str, JSON]
    share_id: Callable[[], str]


def devices_of(pod: JSON, find: Find, classes: Iterable[JSON], nodes: Iterable[JSON]) -> PodDevices:
    """Read a pod's claims. A resource that a node itself offers is not claimed."""
    about, status = pod["metadata"], pod.get("status") or {}
    where = f"{about['namespace']}/{about['name']}"
    made = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
    found = []
    for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
        name, own = entry.get("resourceClaimName"), False
        if not name:
            if entry["name"] not in made:
                return PodDevices(f'pod "{where}": ResourceClaim not created yet')
            name, own = made[entry["name"]].get("resourceClaimName"), True
            if not name:
                continue
        claim = find(CLAIMS, about["namespace"], name)
        if claim is None:
            return PodDevices(f'resourceclaim.resource.k8s.io "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            return PodDevices(f'resourceclaim "{name}" is being deleted')
        if own and (owner_of(claim) or {}).get("uid") != about["uid"]:
            return PodDevices(f'resourceclaim "{name}" was not created for pod {where}')
        found.append(claim)
    offered = {name for node in nodes for name in (node.get("status") or {}).get("capacity") or ()}
    by_name = {each["metadata"]["name"]: each for each in classes}
    own_claim, mappings = _for_resources(pod, by_name, offered)
    return PodDevices("", tuple(found), own_claim, mappings)


def outlook(desired: PodDevices, node: JSON, world: World) -> Outlook:
    """Whether a node can have a pod's devices."""
    removed = device_pools.taken(world.claims)
    here = device_pools.on_node(node, world.slices)
    chosen: dict[str, JSON] = {}
    for claim in (*desired.claims, *((desired.own,) if desired.own else ())):
        allocation = (claim.get("status") or {}).get("allocation")
        if allocation is not None:
            selector = allocation.get("nodeSelector")
            if selector is not None and not matches_node(selector, node):
                return Outlook((ELSEWHERE,))
            continue
        name = claim["metadata"].get("name", "")
        try:
            found = allocate(claim, here, world.classes, removed, world.share_id)
        except CannotAllocate as why:
            reported = f"resourceclaim {name}" if name else "the claim for extended resources"
            return Outlook((f"cannot allocate all claims ({reported}: {why})",))
        chosen[name] = found
        removed.add({"status": {"allocation": found}})
    return Outlook((), chosen)


def reserved(claim: JSON, pod: JSON, allocation: JSON | None, now: float) -> JSON:
    """A pod's claim: allocated, unless it already is, and reserved for the pod.

    Args:
        allocation: the one to write if the claim has none.
    """
    status = dict(claim.get("status") or {})
    if not status.get("allocation") and allocation is not None:
        status["allocation"] = {**allocation, "allocationTimestamp": format_time(now)}
    about, known = pod["metadata"], status.get("reservedFor") or []
    if not any(each.get("uid") == about["uid"] for each in known):
        consumer = {"resource": "pods", "name": about["name"], "uid": about["uid"]}
        status["reservedFor"] = [*known, consumer]
    return {**claim, "status": status}


def protected(claim: JSON) -> JSON:
    """The claim with the finalizer that keeps it while it is allocated."""
    finalizers = claim["metadata"].get("finalizers") or []
    if FINALIZER in finalizers:
        return claim
    return with_metadata(claim, finalizers=[*finalizers, FINALIZER])


def _for_resources(
    pod: JSON, classes: Mapping[str, JSON], offered: Container[str]
) -> tuple[JSON | None, tuple[JSON, ...]]:
    """The claim for the containers' resources that a class provides, not a node."""
    by_resource = {f"{IMPLIED}{name}": name for name in classes}
    for name, each in sorted(classes.items()):
        if resource := (each.get("spec") or {}).get("extendedResourceName"):
            by_resource[resource] = name
    spec = pod.get("spec") or {}
    requests, mappings = [], []
    every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for index, container in enumerate(every):
        requested = (container.get("resources") or {}).get("requests") or {}
        numbered = enumerate(
            name for name in sorted(requested) if name in by_resource and name not in offered
        )
        for number, resource in numbered:
            name = f"container-{index}-request-{number}"
            exactly = {
                "deviceClassName": by_resource[resource],
                "allocationMode": "ExactCount",
                "count": int(requested[resource]),
            }
            if not exactly["count"]:
                continue
            requests.append({"name": name, "exactly": exactly})
            about = {"containerName": container["name"], "resourceName": resource}
            mappings.append({**about, "requestName": name})
    if not requests:
        return None, ()
    metadata = {
        "generateName": f"{pod['metadata']['name']}-extended-resources-",
        "namespace": pod["metadata"]["namespace"],
        "annotations": {EXTENDED: "true"},
        "ownerReferences": [owned_by(pod)],
    }
    claim = {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
    return claim, tuple(mappings)


def owned_by(pod: JSON) -> JSON:
    """The owner reference from a claim to the pod that it is created for."""
    about = pod["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
    return {**reference, "controller": True}

"""Which resource claims a pod uses, and whether one may be prepared for it. Pure.

Source: docs/reference/behaviour-resources.md, ru.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import Pod

CALLS = PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
SCHEDULING = "scheduling.k8s.io"
"""The API group of PodGroups."""
EVERY = "*"
"""Stands for all calls. Source: docs/reference/behaviour-resources.md, ru: skipNodeOperations."""


class ClaimProblem(Exception):
    """A pod's claims cannot be prepared (now); the text is for its owner."""


class ClaimUse(Struct, frozen=True):
    """One claim of a pod.

    Attributes:
        name: in ``spec.resourceClaims``; empty: the claim made for its extended resources.
        claim: name of the ResourceClaim object.
        owned: made for this pod or its PodGroup, from a template, or for the pod's extended
            resources: the object must be controlled by one of them.
    """

    name: str
    claim: str
    owned: bool = False


def uses_claims(pod: Pod) -> bool:
    """Whether a pod has claims, whether or not their names are known yet."""
    return bool(pod.spec.get("resourceClaims") or pod.status.get("extendedResourceClaimStatus"))


def uses(pod: Pod) -> tuple[ClaimUse, ...]:
    """The claims of a pod.

    A template that needs no claim has an entry without a claim's name, which is skipped.

    Raises:
        ClaimProblem: a template's claim is not created yet, or an entry names nothing.
    """
    made = {each.get("name"): each for each in pod.status.get("resourceClaimStatuses") or ()}
    found: list[ClaimUse] = []
    for entry in pod.spec.get("resourceClaims") or ():
        name = entry.get("name") or ""
        if claim := entry.get("resourceClaimName"):
            found.append(ClaimUse(name, claim))
        elif not entry.get("resourceClaimTemplateName"):
            raise ClaimProblem(
                f"pod claim {name}: it has neither resourceClaimName nor resourceClaimTemplateName"
            )
        elif name not in made:
            raise ClaimProblem(
                f"pod claim {name}: no ResourceClaim has been made of the template "
                f"{entry['resourceClaimTemplateName']} yet"
            )
        elif claim := made[name].get("resourceClaimName"):
            found.append(ClaimUse(name, claim, owned=True))
    extended = (pod.status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    if extended:
        found.append(ClaimUse("", extended, owned=True))
    return tuple(found)


def container_uses(pod: Pod, container: api.Container) -> bool:
    """Whether a container gets devices from claims."""
    if (container.get("resources") or {}).get("claims"):
        return True
    return bool(extended_requests(pod, container["name"]))


def asked_for(pod: Pod, container: api.Container) -> list[tuple[str, str]]:
    """A container's requests: each a claim by its name in the pod, with one of its requests or
    ""."""
    named = [
        (each.get("name") or "", each.get("request") or "")
        for each in (container.get("resources") or {}).get("claims") or ()
    ]
    return named + [("", request) for request in extended_requests(pod, container["name"])]


def extended_requests(pod: Pod, container: str) -> tuple[str, ...]:
    """The requests in the pod's own claim that stand for a container's extended resources."""
    status = pod.status.get("extendedResourceClaimStatus") or {}
    return tuple(
        each.get("requestName") or ""
        for each in status.get("requestMappings") or ()
        if each.get("containerName") == container
    )


class Allocated(Struct, frozen=True):
    """A claim that may be prepared.

    Attributes:
        drivers: those that have devices in the allocation, in its order.
        skips: by driver the calls that none of its devices needs, if there are any.
    """

    uid: str
    name: str
    namespace: str
    drivers: tuple[str, ...]
    skips: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def allocated(pod: Pod, use: ClaimUse, claim: Mapping[str, Any]) -> Allocated:
    """The part of a ResourceClaim object to prepare for this pod.

    Raises:
        ClaimProblem: it is not the pod's, not reserved for it or not allocated.
    """
    metadata, status = claim.get("metadata") or {}, claim.get("status") or {}
    who = f"ResourceClaim {pod.namespace}/{use.claim}"
    group = _pod_group(pod)
    if use.owned and not _controlled_by(metadata, pod, group):
        what = (
            f"neither the pod nor PodGroup {group} controls"
            if group
            else "the pod does not control"
        )
        raise ClaimProblem(f"{who} was not made for this pod: {what} it")
    reserved: Sequence[Mapping[str, Any]] = status.get("reservedFor") or ()
    if not any(_is_for(each, pod, group) for each in reserved):
        raise ClaimProblem(f"{who} is not reserved for this pod")
    allocation = status.get("allocation")
    if not allocation:
        raise ClaimProblem(f"{who} is not allocated")
    results = (allocation.get("devices") or {}).get("results") or ()
    drivers = dict.fromkeys(each.get("driver") or "" for each in results)
    skips = {driver: found for driver in drivers if (found := _skipped(results, driver))}
    return Allocated(metadata.get("uid") or "", use.claim, pod.namespace, tuple(drivers), skips)


def _skipped(results: Sequence[Mapping[str, Any]], driver: str) -> tuple[str, ...]:
    """The calls that every device of a driver skips; unknown ones are ignored."""
    each = [
        set(result.get("skipNodeOperations") or ())
        for result in results
        if (result.get("driver") or "") == driver
    ]
    if all(EVERY in skipped for skipped in each):
        return (EVERY,)
    return tuple(call for call in CALLS if all({call, EVERY} & skipped for skipped in each))


def _pod_group(pod: Pod) -> str:
    """The name of the PodGroup that a pod is scheduled with, or ""."""
    return (pod.spec.get("schedulingGroup") or {}).get("podGroupName") or ""


def _controlled_by(metadata: Mapping[str, Any], pod: Pod, group: str) -> bool:
    owners: Sequence[Mapping[str, Any]] = metadata.get("ownerReferences") or ()
    controllers = [owner for owner in owners if owner.get("controller")]
    return any(
        owner.get("uid") == pod.uid
        or (
            group != ""
            and owner.get("name") == group
            and owner.get("kind") == "PodGroup"
            and (owner.get("apiVersion") or "").startswith(f"{SCHEDULING}/")
        )
        for owner in controllers
    )


def _is_for(reservation: Mapping[str, Any], pod: Pod, group: str) -> bool:
    """Whether a claim is reserved for the pod, or for its PodGroup, whose uid no pod has."""
    return reservation.get("uid") == pod.uid or (
        group != ""
        and reservation.get("name") == group
        and reservation.get("resource") == "podgroups"
        and reservation.get("apiGroup") == SCHEDULING
    )

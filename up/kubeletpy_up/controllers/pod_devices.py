"""Effect of a pod's device claims on where it may run. Pure: the objects come as arguments.

Nothing here allocates devices: a pod waits until another program has written the allocations of its
claims. Source: the default scheduler's DynamicResources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy_up.controllers.claim_matching import owner_of
from kubeletpy_up.controllers.placement import matches_node
from kubeletpy_up.kinds.devices import CLAIMS
from kubeletpy_up.kinds.meta import with_metadata

Find = Callable[[str, str, str], JSON | None]
FINALIZER = "resource.kubernetes.io/delete-protection"
NOT_ALLOCATED = (
    "this single-node API allocates no devices; join a cluster, whose kube-scheduler does, or "
    'write the claim\'s status.allocation (docs/embedded-api.md, "Devices")'
)


def devices_of(pod: JSON, find: Find) -> tuple[str, list[JSON]]:
    """Return why a pod can run nowhere at present (or an empty text), and its allocated claims."""
    about, status = pod["metadata"], pod.get("status") or {}
    where = f"{about['namespace']}/{about['name']}"
    made = {each["name"]: each for each in status.get("resourceClaimStatuses") or ()}
    found: list[JSON] = []
    for entry in (pod.get("spec") or {}).get("resourceClaims") or ():
        name, own = entry.get("resourceClaimName"), False
        if not name:
            if entry["name"] not in made:
                return f'pod "{where}": ResourceClaim not created yet', found
            name, own = made[entry["name"]].get("resourceClaimName"), True
            if not name:
                continue
        claim = find(CLAIMS, about["namespace"], name)
        if claim is None:
            return f'resourceclaim.resource.k8s.io "{name}" not found', found
        if claim["metadata"].get("deletionTimestamp"):
            return f'resourceclaim "{name}" is being deleted', found
        if own and (owner_of(claim) or {}).get("uid") != about["uid"]:
            return f'resourceclaim "{name}" was not created for pod {where}', found
        if not (claim.get("status") or {}).get("allocation"):
            return f'resourceclaim "{name}" is not allocated: {NOT_ALLOCATED}', found
        found.append(claim)
    return "", found


def elsewhere(claims: Iterable[JSON], node: JSON) -> tuple[str, ...]:
    """Why a node can't have allocated claims: their devices are on other nodes."""
    selectors = (claim["status"]["allocation"].get("nodeSelector") for claim in claims)
    if all(selector is None or matches_node(selector, node) for selector in selectors):
        return ()
    return ("resourceclaim not available on the node",)


def reserved(claim: JSON, pod: JSON) -> JSON:
    """An allocated claim, reserved for a pod."""
    status = claim.get("status") or {}
    about, known = pod["metadata"], status.get("reservedFor") or []
    if any(each.get("uid") == about["uid"] for each in known):
        return claim
    consumer = {"resource": "pods", "name": about["name"], "uid": about["uid"]}
    return {**claim, "status": {**status, "reservedFor": [*known, consumer]}}


def protected(claim: JSON) -> JSON:
    """The claim with the finalizer that keeps it while it is allocated."""
    finalizers = claim["metadata"].get("finalizers") or []
    if FINALIZER in finalizers:
        return claim
    return with_metadata(claim, finalizers=[*finalizers, FINALIZER])


def owned_by(pod: JSON) -> JSON:
    """The owner reference from a claim to the pod that it is created for."""
    about = pod["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
    return {**reference, "controller": True}

"""The claims of pods, and the resulting calls to drivers and devices of containers. Pure.

Source: docs/reference/behaviour-resources.md, ru.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause, CausedError, CauseKind
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.pods.pod import Pod

CALLS = PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
CALL_S = 45.0
"""The timeout of a call. Source: docs/reference/constants.csv: DRA call."""
SCHEDULING = "scheduling.k8s.io"
"""The API group of PodGroups."""
EVERY = "*"
"""Stands for all calls. Source: docs/reference/behaviour-resources.md, ru: skipNodeOperations."""


class ClaimProblem(CausedError):
    """A pod's claims cannot be prepared (now); the text is for its owner."""


# The claims that a pod uses, and whether one may be prepared for it.


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


def claim_uses(pod: Pod) -> tuple[ClaimUse, ...]:
    """Return the claims of a pod.

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


def container_uses_claims(pod: Pod, container: api.Container) -> bool:
    """Whether a container gets devices from claims."""
    if (container.get("resources") or {}).get("claims"):
        return True
    return bool(extended_requests(pod, container["name"]))


def container_requests(pod: Pod, container: api.Container) -> list[tuple[str, str]]:
    """Return a container's requests: names of claims in the pod, each with a request or ""."""
    named = [
        (each.get("name") or "", each.get("request") or "")
        for each in (container.get("resources") or {}).get("claims") or ()
    ]
    return named + [("", request) for request in extended_requests(pod, container["name"])]


def extended_requests(pod: Pod, container: str) -> tuple[str, ...]:
    """Return the requests in the pod's own claim for a container's extended resources."""
    status = pod.status.get("extendedResourceClaimStatus") or {}
    return tuple(
        each.get("requestName") or ""
        for each in status.get("requestMappings") or ()
        if each.get("containerName") == container
    )


class AllocatedClaim(Struct, frozen=True):
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


def allocated_claim(pod: Pod, use: ClaimUse, claim: Mapping[str, Any]) -> AllocatedClaim:
    """Return the part of a ResourceClaim object to prepare for a pod.

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
    not_reserved = Cause(CauseKind.CLAIM_NOT_RESERVED, use.claim)
    reserved: Sequence[Mapping[str, Any]] = status.get("reservedFor") or ()
    if not any(_is_for(each, pod, group) for each in reserved):
        raise ClaimProblem(f"{who} is not reserved for this pod", not_reserved)
    allocation = status.get("allocation")
    if not allocation:
        raise ClaimProblem(f"{who} is not allocated", not_reserved)
    results = (allocation.get("devices") or {}).get("results") or ()
    drivers = dict.fromkeys(each.get("driver") or "" for each in results)
    skips = {driver: found for driver in drivers if (found := _skipped(results, driver))}
    return AllocatedClaim(
        metadata.get("uid") or "", use.claim, pod.namespace, tuple(drivers), skips
    )


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


# The claims of the node.


class ClaimDevice(Struct, frozen=True):
    """One device that a driver has prepared.

    Attributes:
        requests: the claim's requests that it serves; empty: all.
        cdi: names of CDI devices, ``vendor.com/class=name``; a device may have none.
    """

    pool: str
    name: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share: str | None = None


class ClaimInfo(Struct, frozen=True):
    """One claim that pods of this node use.

    Attributes:
        pods: uids of the pods that use it.
        drivers: each driver of the allocation, with what it has prepared.
        prepared: since this agent started. It is kept nowhere else: after a restart a new
            sandbox has its claims prepared again.
        restored: from the checkpoint: ``drivers`` is what they prepared for an earlier agent.
        skips: by driver the calls that are not made, by name or "*".
    """

    uid: str
    name: str
    namespace: str
    pods: frozenset[str] = frozenset()
    drivers: Mapping[str, tuple[ClaimDevice, ...]] = field(default_factory=dict)
    prepared: bool = False
    restored: bool = False
    skips: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def called(self, call: str) -> tuple[str, ...]:
        """Return the drivers that get a call for this claim."""
        return tuple(
            driver for driver in self.drivers if not {call, EVERY} & {*self.skips.get(driver, ())}
        )

    @property
    def key(self) -> ClaimKey:
        """Namespace and name, which only one claim has at a time."""
        return self.namespace, self.name

    @property
    def full_name(self) -> str:
        """Namespace and name as one text, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def usable(self) -> bool:
        """Whether it is known what its drivers have prepared."""
        return self.prepared or self.restored


class ContainerClaim(Struct, frozen=True):
    """A claim that a container uses, with what the drivers have prepared for it.

    Attributes:
        devices: driver -> those of the whole claim, including requests that others use.
    """

    name: str
    namespace: str
    devices: Mapping[str, tuple[ClaimDevice, ...]]


class ClaimWait(Struct, frozen=True):
    """A call to a driver in progress.

    Attributes:
        claims: names of the ResourceClaims that it is for.
        since: by the event loop's clock.
        until: when it is given up.
    """

    claims: str
    driver: str
    call: str
    since: float
    until: float


ClaimKey = tuple[str, str]
"""Namespace and name."""
Claims = Mapping[ClaimKey, ClaimInfo]


def referenced(
    known: ClaimInfo | None, claim: AllocatedClaim, pod: str, *, may_skip: bool = False
) -> ClaimInfo:
    """Return a claim with one more pod that uses it.

    Args:
        may_skip: whether the allocation may exempt drivers from calls. The decision for a claim
            holds until its last pod has ended, also in agents that decide otherwise.

    Raises:
        ClaimProblem: an older claim of that name is still in use, or drivers may not be exempted.
    """
    if known is None:
        if claim.skips and not may_skip:
            raise ClaimProblem(
                f"ResourceClaim {claim.namespace}/{claim.name} skips calls to DRA driver "
                f"{', '.join(claim.skips)}, and the DRAOptionalNodeOperations feature gate is "
                "disabled on kubelet"
            )
        drivers: dict[str, tuple[ClaimDevice, ...]] = dict.fromkeys(claim.drivers, ())
        pods = frozenset({pod})
        return ClaimInfo(claim.uid, claim.name, claim.namespace, pods, drivers, skips=claim.skips)
    if known.uid != claim.uid:
        raise ClaimProblem(
            f"old ResourceClaim with same name {known.name} and different UID {known.uid} still "
            "exists: its drivers have not unprepared it yet"  # the kubelet's text, then the cause
        )
    return replace(known, pods=known.pods | {pod})


def claims_by_driver(claims: Iterable[ClaimInfo], call: str) -> dict[str, list[ClaimInfo]]:
    """Return the claims of each driver that gets a call: the content of one call."""
    found: dict[str, list[ClaimInfo]] = {}
    for claim in claims:
        for driver in claim.called(call):
            found.setdefault(driver, []).append(claim)
    return found


def exempted(claims: Iterable[ClaimInfo], call: str) -> list[str]:
    """Return the drivers that do not get a call, once for each claim."""
    return [
        driver for claim in claims for driver in claim.drivers if driver not in claim.called(call)
    ]


def leaving(claims: Claims, pod: str) -> tuple[list[ClaimInfo], list[ClaimInfo]]:
    """Return the claims that others still use after a pod's end, and those to unprepare.

    The former are without this pod.
    """
    used = [claim for claim in claims.values() if pod in claim.pods]
    kept = [replace(claim, pods=claim.pods - {pod}) for claim in used if len(claim.pods) > 1]
    return kept, [claim for claim in used if len(claim.pods) == 1]


def cdi_devices(
    claims: Claims, pod: Pod, uses: Collection[ClaimUse], requested: Iterable[tuple[str, str]]
) -> tuple[str, ...]:
    """Return the CDI devices of one container, each once.

    Args:
        requested: claims of the pod by their names in it, each with a request or "".

    Raises:
        ClaimProblem: a claim is not prepared.
    """
    objects = {use.name: use.claim for use in uses}
    found: dict[str, None] = {}
    for name, request in requested:
        if name not in objects:
            continue  # its template needs no claim
        claim = claims.get((pod.namespace, objects[name]))
        if claim is None or not claim.usable or pod.uid not in claim.pods:
            raise ClaimProblem(
                f"ResourceClaim {pod.namespace}/{objects[name]} is not prepared for this pod"
            )
        for devices in claim.drivers.values():
            for device in devices:
                if not request or not device.requests or request in device.requests:
                    found.update(dict.fromkeys(device.cdi))
    return tuple(found)


def container_claims(
    claims: Claims, pod: Pod, uses: Collection[ClaimUse], requested: Iterable[str]
) -> tuple[ContainerClaim, ...]:
    """Return the claims of one container, each once, without those that are not prepared.

    Args:
        requested: claims of the pod by their names in it.
    """
    objects = {use.name: use.claim for use in uses}
    found = []
    for name in dict.fromkeys(requested):
        claim = claims.get((pod.namespace, objects.get(name, "")))
        if claim is not None and claim.usable and pod.uid in claim.pods:
            found.append(ContainerClaim(claim.name, claim.namespace, claim.drivers))
    return tuple(found)
